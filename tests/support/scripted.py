"""Environments whose every answer is known in advance, so that a test can say what each array must hold.

Configurations name them as `scripted:Name`; actor processes import this module too.
"""

import dataclasses
import itertools
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import create_empty_array

from pronk.envs import VectorEnv

# Length and end of one episode after another. Each environment starts at a position that depends on its seed.
SCRIPT = [
    (3, "terminated"),
    (1, "truncated"),
    (1, "terminated"),
    (4, "truncated"),
    (2, "both"),
    (1, "truncated"),
    (1, "truncated"),
    (5, "terminated"),
    (1, "both"),
]
NAMES = 251  # environments are distinguished by their seed modulo this


def fate(seed: int, episode: int) -> tuple[int, bool, bool]:
    """Length, terminated, truncated."""
    length, end = SCRIPT[(seed + episode) % len(SCRIPT)]
    return length, end != "truncated", end != "terminated"


def earned(episode: int, step: int, action: int) -> float:
    """The reward of the `step`-th action (from 1) of an episode: exact in float32 and in no less, of either sign."""
    return (-1) ** step * (episode / 4 + step / 8) + action / 4096


class Clock(gym.Env):
    """Its observation says which environment, episode and step it is and what was done last; so does its reward."""

    alive: ClassVar[set[int]] = set()  # serial numbers of those made and not yet closed, in this process
    _serial_numbers = itertools.count()

    def __init__(self) -> None:
        self.observation_space = Dict(
            clock=MultiDiscrete([NAMES, 1000, 8]),
            last=Discrete(4, start=-1),
            reading=Box(-np.inf, np.inf, (2, 1), np.float64),
        )
        self.action_space = Discrete(3, start=2)
        self._seed = self._episode = self._step = 0
        self._last = -1
        self._serial_number = next(self._serial_numbers)
        self.alive.add(self._serial_number)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        self._episode = self._episode + 1 if seed is None else 0
        self._seed = self._seed if seed is None else seed
        self._step, self._last = 0, -1
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        if action not in self.action_space:
            raise ValueError(f"{action!r} is no action")
        length, terminated, truncated = fate(self._seed, self._episode)
        self._step, self._last = self._step + 1, int(action) - 2
        over = self._step == length
        return self._look(), earned(self._episode, self._step, self._last), over and terminated, over and truncated, {}

    def close(self) -> None:
        self.alive.discard(self._serial_number)

    def _look(self) -> dict[str, Any]:
        return {
            "clock": np.array([self._seed % NAMES, self._episode, self._step]),
            "last": self._last,
            "reading": np.array([[self._episode + 0.5], [-self._step / 4]]),
        }


gym.register("Clock-v0", Clock)


class NextStepClock(gym.vector.SyncVectorEnv):
    """A user's vector class: clocks that reset in the step after their last."""

    def __init__(self, num_envs: int) -> None:
        super().__init__([Clock] * num_envs, copy=False, autoreset_mode=AutoresetMode.NEXT_STEP)


class SameStepClock(gym.vector.SyncVectorEnv):
    """A user's vector class: clocks that reset at once, with their true last observations in the info."""

    def __init__(self, num_envs: int, batched: bool = False) -> None:
        super().__init__([Clock] * num_envs, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)
        self._batched = batched

    def step(self, actions: Any) -> Any:
        *answer, info = super().step(actions)
        if self._batched and "final_obs" in info:  # as a tree of arrays, not as an array of trees
            ended = np.flatnonzero(info["_final_obs"])
            shown = create_empty_array(self.single_observation_space, self.num_envs)
            for index in ended:
                for key, value in info["final_obs"][index].items():
                    shown[key][index] = value
            info["final_obs"] = shown
        return *answer, info


class Bonus(gym.Env):
    """Pays only for its last step, the fifth: +1 if the action is the one that the observation asks for, else -1.

    The step ends the episode by truncation (or by termination, on request): a learner that drops the rewards of
    truncated steps learns nothing.
    """

    STEPS = 5
    observation_space = Box(-1.0, 1.0, (STEPS + 2,), np.float32)
    action_space = Discrete(2)

    def __init__(self, terminates: bool = False) -> None:
        self._terminates = terminates
        self._step = self._asked = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self._step = 0
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        right = int(action) == self._asked
        self._step += 1
        over = self._step == self.STEPS
        reward = (1.0 if right else -1.0) if over else 0.0
        return self._look(), reward, over and self._terminates, over and not self._terminates, {}

    def _look(self) -> np.ndarray:
        self._asked = int(self.np_random.integers(2))
        seen = np.zeros(self.STEPS + 2, np.float32)
        seen[self._step], seen[-1] = 1.0, 2.0 * self._asked - 1.0
        return seen


class NextStepBonus(gym.vector.SyncVectorEnv):
    """A user's vector class that resets in the step after the last."""

    def __init__(self, num_envs: int) -> None:
        super().__init__([Bonus] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


class SameStepBonus(gym.vector.SyncVectorEnv):
    """A user's vector class that resets at once and puts the true last observation into the info."""

    def __init__(self, num_envs: int) -> None:
        super().__init__([Bonus] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


class TwoTasks:
    """A `VectorEnv` whose environments play two tasks by turns; what they do is up to the one it wraps."""

    def __init__(self, env: VectorEnv) -> None:
        self.spec = dataclasses.replace(env.spec, tasks=("even", "odd"))
        self.count, self.task = env.count, np.arange(env.count, dtype=np.int32) % 2
        self.reset, self.step, self.close = env.reset, env.step, env.close
        self.encode, self.decode = env.encode, env.decode


OBSERVATIONS = {
    "float32": Box(-1.0, 1.0, (3,), np.float32),
    "float64": Box(-np.inf, np.inf, (2, 3), np.float64),
    "scalar": Box(-1.0, 1.0, (), np.float32),
    "bytes": Box(0, 255, (4, 4, 2), np.uint8),
    "int32": Box(-5, 5, (2,), np.int32),
    "uint16": Box(0, 60000, (2,), np.uint16),
    "bool": Box(0, 1, (3,), np.bool_),
    "discrete": Discrete(5),
    "discrete_from_7": Discrete(5, start=7),
    "discrete_from_below_0": Discrete(3, start=-4),
    "multi_discrete": MultiDiscrete([3, 5]),
    "multi_discrete_grid": MultiDiscrete([[2, 3], [4, 5]], start=[[1, -1], [0, 10]]),
    "multi_binary": MultiBinary(4),
    "multi_binary_grid": MultiBinary([2, 3]),
    "dict": Dict(position=Box(-1.0, 1.0, (2,), np.float64), room=Discrete(4, start=1)),
    "tuple": Tuple((Discrete(3, start=2), Box(0, 255, (2, 2), np.uint8))),
    "text": Text(12, charset="ab "),
    "text_and_number": Dict(mission=Text(9), speed=Box(0.0, 1.0, (1,))),
    "nested": Dict(b=Dict(z=MultiBinary(2), a=Tuple((Discrete(2), Dict(x=Box(0.0, 1.0, (1,)))))), a=Box(0.0, 1.0)),
}
ACTIONS = {
    "discrete": Discrete(4),
    "discrete_from_3": Discrete(4, start=3),
    "multi_discrete": MultiDiscrete([3, 2, 4], start=[1, 0, -2]),
    "multi_binary": MultiBinary(3),
    "box": Box(np.float32([-2.0, 0.0]), np.float32([2.0, 10.0])),
    "box_grid": Box(-1.0, 1.0, (2, 2), np.float64),
    "unbounded": Box(-np.inf, np.inf, (3,)),
    "half_bounded": Box(np.float32([0.0, -np.inf, -1.0]), np.float32([np.inf, 1.0, 1.0])),
}


class Legacy(gym.Env):
    """Seeds a `RandomState`, as MinAtar and many others do; it takes seeds of 32 bits and no more."""

    observation_space, action_space = Box(0.0, 1.0, (2,), np.float64), Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        if seed is not None:
            self._random = np.random.RandomState(seed)
        return self._random.random_sample(2), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        seen = self._random.random_sample(2)
        return seen, float(seen[0]), bool(seen[0] < 0.2), bool(seen[1] < 0.2), {}


class Sampled(gym.Env):
    """Random observations of a space and random ends; it refuses actions that are masked or not of its space."""

    def __init__(self, observation: str = "float32", action: str = "discrete", masked: bool = False) -> None:
        self.action_space, seen = ACTIONS[action], OBSERVATIONS[observation]
        self._choices = np.atleast_1d(getattr(self.action_space, "nvec", getattr(self.action_space, "n", [])))
        self._start = np.atleast_1d(getattr(self.action_space, "start", 0))
        self._mask: np.ndarray | None = None
        self._masked = masked
        mask = {"action_mask": MultiBinary(int(self._choices.sum()))} if masked else {}
        self.observation_space = Dict(seen=seen, **mask) if masked else seen

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        if action not in self.action_space:
            raise ValueError(f"{action!r} is no action")
        if self._mask is not None:
            chosen = np.atleast_1d(action) - self._start + np.cumsum(self._choices) - self._choices
            if not self._mask[chosen].all():
                raise ValueError(f"{action!r} is masked by {self._mask}")
        terminated, truncated = self.np_random.random(2) < 0.1
        return self._look(), float(self.np_random.normal()), bool(terminated), bool(truncated), {}

    def _look(self) -> Any:
        self.observation_space.seed(int(self.np_random.integers(2**32)))
        seen = self.observation_space.sample()
        if self._masked:
            for first, count in zip(np.cumsum(self._choices) - self._choices, self._choices, strict=True):
                seen["action_mask"][first + self.np_random.integers(count)] = 1  # always something to do
            self._mask = seen["action_mask"]
        return seen


class Broken(gym.Env):
    """Answers with something that is not a number at its third step."""

    observation_space = Dict(a=Box(-1.0, 1.0, (2,)), b=Box(-1.0, 1.0, ()))
    action_space = Discrete(2)

    def __init__(self, where: str = "nowhere", value: float = float("nan")) -> None:
        self._where, self._value, self._steps = where, value, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        return {"a": np.zeros(2, np.float32), "b": np.float32(0.0)}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self._steps += 1
        answer = {"a": np.zeros(2, np.float32), "b": np.float32(0.0), "reward": 0.0}
        if self._steps == 3 and self._where in answer:
            answer[self._where] = answer[self._where] + np.float32(self._value)
        reward = answer.pop("reward")
        return answer, reward, False, False, {}


class Relay:
    """A parallel environment as PettingZoo has them: agents end one after another, the last by a time limit."""

    possible_agents = ("a", "b", "c")

    def __init__(self, render_mode: str | None = None) -> None:
        self.agents: list[str] = []
        self._random = np.random.default_rng(0)

    def observation_space(self, agent: str) -> Box:
        return Box(-1.0, 20.0, (3,), np.float32)

    def action_space(self, agent: str) -> Discrete:
        return Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self.agents, self._time = list(self.possible_agents), 0
        return {agent: self._look(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        assert set(actions) == set(self.agents), "only those play that are not done"
        self._time += 1
        acted = self.agents
        terminations = {agent: self._time == 3 + "ab".index(agent) if agent != "c" else False for agent in acted}
        truncations = {agent: agent == "c" and self._time == 7 for agent in acted}
        rewards = {agent: float(actions[agent]) + 0.5 for agent in acted}
        self.agents = [agent for agent in acted if not (terminations[agent] or truncations[agent])]
        seen = {agent: self._look(agent) for agent in acted}
        return seen, rewards, terminations, truncations, {agent: {} for agent in acted}

    def close(self) -> None: ...

    def _look(self, agent: str) -> np.ndarray:
        return np.array([self._time, self.possible_agents.index(agent), self._random.random()], np.float32)
