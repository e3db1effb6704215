"""An environment whose steps carry a number. Without torch: actors import it."""

from __future__ import annotations

import os
import time
from typing import Any

import gymnasium as gym
import numpy as np

EPISODE = 10
CLOCK = 2.0**-20  # a step of the clock in the observation; a power of two, so that float32 holds it exactly


class Stamped(gym.Env[np.ndarray, np.int64]):
    """Reward 1 for the action that the first number of the observation names; the others say which step this is."""

    def __init__(self, seconds: float = 0.002) -> None:
        self.observation_space = gym.spaces.Box(-16.0, 16.0, (4,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self._seconds = seconds
        self._name = np.frombuffer(os.urandom(4), np.uint16) / 2.0**26  # small, so that it does not disturb learning
        self._clock = self._place = self._wanted = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._place = 0
        return self._see(), {}

    def step(self, action: np.int64) -> Any:
        time.sleep(self._seconds)
        self._clock += 1
        self._place += 1
        reward = float(action == self._wanted)
        return self._see(), reward, self._place == EPISODE, False, {}

    def _see(self) -> np.ndarray:
        self._wanted = int(self.np_random.integers(2))
        return np.array([2 * self._wanted - 1, *self._name, self._clock * CLOCK], np.float32)
