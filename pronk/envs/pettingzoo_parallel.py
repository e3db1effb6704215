"""`pettingzoo:MODULE`: PettingZoo's parallel environments, whose agents share the weights of one policy.

Each agent is a column of the vector, so one team of k agents fills k columns. A team is reset when all of its agents
are done, in the step after the last one's. An agent that is done earlier waits: its rows are not valid.

    agent A   o a | o a | o, terminated     . waits .   | o, first
    agent B   o a | o a | o a | o, truncated | (reset)   | o, first
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from pronk.config import EnvConfig
from pronk.config.named import import_extra, import_module
from pronk.envs.mistakes import mistakes_explained
from pronk.envs.spaces import check_shapes, translation
from pronk.envs.wrappers import notes_of, wrapped
from pronk.layout import Layout
from pronk.types import Array, EnvSpec, Step, UserError, assign, step_specs

PREFIX = "pettingzoo:"
OF_OBSERVATIONS = {"auto", "resize", "grayscale", "stack", "keys", "flatten", "normalise", "clip"}


def make(config: EnvConfig, count: int) -> TeamVector:
    """Make as many teams as `count` columns need. The vector has more columns if the last team is not filled."""
    return TeamVector(team_maker(config), config, count)


def team_maker(config: EnvConfig) -> Callable[..., Any]:
    """Return a function that makes one parallel environment with `env.kwargs` and further arguments."""
    create = creator_of(config)

    def make_one(**more: Any) -> Any:
        with mistakes_explained(config, lambda: create):
            return create(**config.kwargs, **more)

    return make_one


def creator_of(config: EnvConfig) -> Callable[..., Any]:
    """Return `parallel_env` of a module of PettingZoo or of yours, or the attribute of `module:attribute`."""
    address, colon, attribute = config.id.removeprefix(PREFIX).partition(":")
    own = importlib.util.find_spec(address.partition(".")[0]) if address else None
    if own is None:
        import_extra("pettingzoo", f"env.id={config.id}", "pettingzoo")
        address = f"pettingzoo.{address}"
    with mistakes_explained(config):
        module = import_module(address, config.id)
    name = attribute if colon else "parallel_env"
    if not callable(getattr(module, name, None)):
        raise UserError(f"env.id: {module.__name__} has no {name}; expected a module with a PettingZoo parallel_env")
    return getattr(module, name)


class TeamVector:
    """A `VectorEnv` over the agents of parallel environments."""

    def __init__(self, make_one: Callable[[], Any], config: EnvConfig, count: int) -> None:
        envs = [make_one()]
        agents = checked_agents(envs[0], config)
        envs += [make_one() for _ in range(-(-count // len(agents)) - 1)]
        eyes = [[Eyes(env, agent, config) for agent in agents] for env in envs]
        example = eyes[0][0].wrapped
        observation, action, self.encode, self.decode = translation(example.observation_space, example.action_space)
        limit = getattr(getattr(envs[0], "unwrapped", envs[0]), "max_cycles", 0)  # the usual name in PettingZoo
        self.spec = EnvSpec(observation, action, notes=notes_of(example), agents=len(agents), time_limit=limit)
        self.count = len(envs) * len(agents)
        self.task = np.zeros(self.count, np.int32)
        layout = Layout(step_specs(self.spec, self.count)._asdict())
        self._columns = Step(**layout.view(np.zeros(layout.nbytes, np.uint8)))
        self.teams = [
            Team(env, agents, seen, Columns(self._columns, index * len(agents), self.spec, self.encode))
            for index, (env, seen) in enumerate(zip(envs, eyes, strict=True))
        ]

    def reset(self, seeds: list[int]) -> Step:
        """Open a new episode in each team; the first seeds are theirs."""
        for team, seed in zip(self.teams, seeds, strict=False):
            team.reset(seed)
        return self._columns

    def step(self, action: Array) -> Step:
        """Play one action of each agent."""
        actions = list(self.decode(action))
        for index, team in enumerate(self.teams):
            team.step(actions[index * team.size : (index + 1) * team.size])
        return self._columns

    def close(self) -> None:
        """Close the environments."""
        for team in self.teams:
            team.close()


class Columns:
    """Writes the rows of one team's agents into the arrays of the vector."""

    def __init__(self, columns: Step, start: int, spec: EnvSpec, encode: Callable[[Any], Any]) -> None:
        self._columns, self._start, self._spec, self._encode = columns, start, spec, encode

    def observe(self, agent: int, observation: Any) -> None:
        """Write what an agent sees."""
        encoded = self._encode(observation)
        check_shapes(encoded, self._spec.observation, f"agent {agent}")
        assign(self._columns.observation, self._start + agent, encoded)

    def write(self, agent: int, **values: Any) -> None:
        """Write the other fields; those that are not given get the values of a row in which nothing happened."""
        nothing = {"first": False, "reward": 0.0, "discount": True, "valid": False}
        nothing |= {"episode_return": math.nan, "episode_length": 0}
        for name, value in (nothing | values).items():
            getattr(self._columns, name)[self._start + agent] = value


class Team:
    """One parallel environment, and the column of each of its agents."""

    def __init__(self, env: Any, agents: list[str], eyes: list[Eyes], columns: Columns) -> None:
        self.env, self.size = env, len(agents)
        self._agents, self._eyes, self._columns = agents, eyes, columns
        self._return, self._length = [0.0] * self.size, [0] * self.size

    def reset(self, seed: int | None = None) -> None:
        """Open a new episode for every agent."""
        observations, _ = self.env.reset(seed=seed)
        for index, agent in enumerate(self._agents):
            self._return[index], self._length[index] = 0.0, 0
            if agent in observations:
                self._columns.observe(index, self._eyes[index].opened(observations[agent]))
            self._columns.write(index, first=True)

    def step(self, actions: list[Any]) -> None:
        """Play the actions of the agents that are not done; if all are, open the next episode instead."""
        playing = set(self.env.agents)
        if not playing:
            self.reset()
            return
        chosen = {agent: actions[index] for index, agent in enumerate(self._agents) if agent in playing}
        observations, rewards, terminations, truncations, _ = self.env.step(chosen)
        for index, agent in enumerate(self._agents):
            if agent not in playing:
                self._columns.write(index)
                continue
            reward, terminated = float(rewards.get(agent, 0.0)), bool(terminations.get(agent, True))
            self._return[index] += reward
            self._length[index] += 1
            if agent in observations:
                self._columns.observe(index, self._eyes[index].followed(observations[agent], actions[index]))
            ended = {}
            if terminated or truncations.get(agent, False):
                ended = {"episode_return": self._return[index], "episode_length": self._length[index]}
            self._columns.write(index, reward=reward, discount=not terminated, valid=True, **ended)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


class View(gym.Env):
    """What one agent sees, as an environment, so that wrappers of observations apply to it."""

    def __init__(self, env: Any, agent: str) -> None:
        self.observation_space, self.action_space = env.observation_space(agent), env.action_space(agent)
        self.now: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Return the observation."""
        return self.now, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return the observation; all else is the team's."""
        return self.now, 0.0, False, False, {}


class Eyes:
    """A view of an agent with the configured wrappers around it."""

    def __init__(self, env: Any, agent: str, config: EnvConfig) -> None:
        others = [name for entry in config.wrappers for name in entry if name not in OF_OBSERVATIONS]
        if others:
            raise UserError(
                f"env.wrappers: {others[0]} cannot be applied to the agents of {config.id}; wrappers of observations "
                f"can: {', '.join(sorted(OF_OBSERVATIONS))}"
            )
        self._view = View(env, agent)
        self.wrapped = wrapped(self._view, config)

    def opened(self, observation: Any) -> Any:
        """Return the first observation of an episode as the wrappers show it."""
        self._view.now = observation
        return self.wrapped.reset()[0]

    def followed(self, observation: Any, action: Any) -> Any:
        """Return the next observation as the wrappers show it."""
        self._view.now = observation
        return self.wrapped.step(action)[0]


def checked_agents(env: Any, config: EnvConfig) -> list[str]:
    """Return the agents; raise `UserError` where they cannot share weights."""
    missing = [name for name in ("possible_agents", "observation_space", "action_space") if not hasattr(env, name)]
    if missing:
        raise UserError(f"env.id: {config.id} made a {type(env).__name__} without {', '.join(missing)}")
    agents = list(env.possible_agents)
    for agent in agents[1:]:
        for kind in ("observation_space", "action_space"):
            ours, theirs = getattr(env, kind)(agents[0]), getattr(env, kind)(agent)
            if ours != theirs:
                raise UserError(
                    f"env.id: {config.id}: {agents[0]} and {agent} have different {kind}s, so they cannot share "
                    "weights; pad them (SuperSuit's pad_observations_v0, pad_action_space_v0) or use one kind of agent"
                )
    return agents
