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
