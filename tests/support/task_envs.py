"""Environments for several tasks: an episode has a known length, and pays the same whatever is done."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete


class Wage(gym.Env):
    """Pays `pay` for each of `length` steps. The observation is `size` numbers: the pay, and how far it has come."""

    def __init__(self, pay: float = 1.0, length: int = 4, size: int = 2, actions: int = 2) -> None:
        self.observation_space = Box(-np.inf, np.inf, (size,), np.float32)
        self.action_space = Discrete(actions)
        self._pay, self._length, self._step = pay, length, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        self._step = 0
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self._step += 1
        return self._look(), self._pay, self._step == self._length, False, {}

    def _look(self) -> np.ndarray:
        seen = np.zeros(self.observation_space.shape, np.float32)
        seen[0], seen[-1] = self._pay, self._step / self._length
        return seen


class Signal(gym.Env):
    """Pays `pay` for each of 4 steps if the action is the one that a random signal asks for, else nothing.

    The observation is the signal, of `choices`, and the step. In some tasks the signal stands for the `shift`-th action
    after it, and a last number says so.
    """

    def __init__(self, pay: float = 1.0, shift: int = 0, choices: int = 4) -> None:
        self.observation_space = Box(0.0, 1.0, (choices + 2,), np.float32)
        self.action_space = Discrete(choices)
        self._pay, self._shift, self._choices = pay, shift, choices
        self._step = self._asked = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self._step = 0
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        right = int(action) == (self._asked + self._shift) % self._choices
        self._step += 1
        return self._look(), self._pay * right, self._step == 4, False, {}

    def _look(self) -> np.ndarray:
        self._asked = int(self.np_random.integers(self._choices))
        seen = np.zeros(self._choices + 2, np.float32)
        seen[self._asked], seen[-2], seen[-1] = 1.0, self._step / 4, self._shift > 0
        return seen
