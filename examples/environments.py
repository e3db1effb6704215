"""Environments of one's own, in a few lines each: `pronk train examples.environments:Recall ...`.

Each asks for one thing that an agent must get right. They are ordinary Gymnasium environments, and `Countdown` shows
how to write one natively vectorised, which is what to do when speed matters.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space


class Recall(gym.Env):
    """A memory task: a cue is shown once, and `delay` steps later the agent must name it. Guessing earns 1/cues."""

    def __init__(self, cues: int = 4, delay: int = 5) -> None:
        self._cues, self._delay = cues, delay
        self.observation_space = gym.spaces.Discrete(cues + 1)  # the last one: nothing to see
        self.action_space = gym.spaces.Discrete(cues)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Show the cue."""
        super().reset(seed=seed)
        self._cue, self._left = int(self.np_random.integers(self._cues)), self._delay
        return self._cue, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Nothing to see until the end."""
        self._left -= 1
        done = self._left == 0
        return self._cues, float(done and action == self._cue), done, False, {}


class RecallPicture(gym.Env):
    """`Recall` in pictures: a square lights up in one corner of a noisy picture, then there is only noise, and `delay`
    steps later the agent must name the corner. Guessing earns 1/4."""

    def __init__(self, delay: int = 5, size: int = 20) -> None:
        self._delay, self._size = delay, size
        self.observation_space = gym.spaces.Box(0, 255, (size, size, 1), np.uint8)
        self.action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Show the square."""
        super().reset(seed=seed)
        self._corner, self._left = int(self.np_random.integers(4)), self._delay
        picture, half = self._noise(), self._size // 2
        down, right = divmod(self._corner, 2)
        picture[down * half :, right * half :][:half, :half] += 128
        return picture, {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Noise until the end."""
        self._left -= 1
        done = self._left == 0
        return self._noise(), float(done and action == self._corner), done, False, {}

    def _noise(self) -> Any:
        return self.np_random.integers(0, 64, (self._size, self._size, 1), np.uint8)


class Forbidden(gym.Env):
    """A masked task: only some of `actions` are allowed at each step, and one of these is right (earns 1).

    A forbidden action raises, so a single mistake of the mask ends the run.
    """

    def __init__(self, actions: int = 8, steps: int = 10) -> None:
        self._actions, self._steps = actions, steps
        self.action_space = gym.spaces.Discrete(actions)
        self.observation_space = gym.spaces.Dict(
            {"hint": gym.spaces.Discrete(actions), "action_mask": gym.spaces.MultiBinary(actions)}
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin."""
        super().reset(seed=seed)
        self._left = self._steps
        return self._deal(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Right is the action that the hint names."""
        if not self._mask[action]:
            raise ValueError(f"action {action} is forbidden; allowed are {np.flatnonzero(self._mask)}")
        reward = float(action == self._hint)
        self._left -= 1
        return self._deal(), reward, self._left == 0, False, {}

    def _deal(self) -> dict[str, Any]:
        self._mask = self.np_random.random(self._actions) < 0.4
        self._hint = int(self.np_random.integers(self._actions))
        self._mask[self._hint] = True
        return {"hint": self._hint, "action_mask": self._mask.astype(np.int8)}


class Instructed(gym.Env):
    """A language task: a sentence says which of the buttons to press, and which one not to. Guessing earns 1/4."""

    COLOURS = ("red", "green", "blue", "yellow")

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Dict(
            {"mission": gym.spaces.Text(60), "noise": gym.spaces.Box(-1.0, 1.0, (2,), np.float32)}
        )
        self.action_space = gym.spaces.Discrete(len(self.COLOURS))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Give the instruction."""
        super().reset(seed=seed)
        self._wanted, other = self.np_random.permutation(len(self.COLOURS))[:2]
        wanted, unwanted = self.COLOURS[self._wanted], self.COLOURS[other]
        orders = (f"press {wanted}, not {unwanted}", f"do not press {unwanted}: press {wanted}")
        self._mission = orders[self.np_random.integers(2)]
        return self._look(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Press a button."""
        return self._look(), float(action == self._wanted), True, False, {}

    def _look(self) -> dict[str, Any]:
        return {"mission": self._mission, "noise": self.np_random.uniform(-1, 1, 2).astype(np.float32)}


class Countdown(gym.vector.VectorEnv):
    """Episodes of `shortest` to `longest` steps whose ends matter; N at once.

    The observation counts the steps that are left (as a share of `longest`) and shows a coin. At the last step the
    right action earns +1 and the wrong one -1; before it nothing is earned. The value of a state with k steps left is
    therefore gamma^(k-1) for an agent that has learnt, whatever comes after the end: a learner that bootstraps across
    ends gets it wrong.
    """

    def __init__(self, num_envs: int, shortest: int = 1, longest: int = 5) -> None:
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.num_envs, self._shortest, self._longest = num_envs, shortest, longest
        self.single_observation_space = gym.spaces.Box(0.0, 1.0, (2,), np.float32)
        self.single_action_space = gym.spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._left = np.zeros(num_envs, np.int64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin everywhere."""
        super().reset(seed=seed)
        self._begin(np.ones(self.num_envs, bool))
        return self._observe(), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Count down."""
        ended = self._left == 1
        reward = np.where(ended, np.where(actions == self._coin, 1.0, -1.0), 0.0)
        self._left -= 1
        self._begin(ended)
        return self._observe(), reward, ended, np.zeros(self.num_envs, bool), {}

    def _begin(self, where: np.ndarray) -> None:
        self._left[where] = self.np_random.integers(self._shortest, self._longest + 1, int(where.sum()))

    def _observe(self) -> np.ndarray:
        self._coin = self.np_random.integers(2, size=self.num_envs)
        return np.stack([self._left / self._longest, self._coin], 1).astype(np.float32)
