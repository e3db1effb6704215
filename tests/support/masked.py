"""Environments with an action mask, named `masked:Name`."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, MultiBinary, MultiDiscrete
from gymnasium.vector import AutoresetMode

LENGTH = 3  # steps per episode


class Stuck(gym.Env):
    """Two choices, of 2 and 3 options. Forbids all options of one choice at `step` (from 0) of every episode.

    The observation after the last step (`LENGTH`) forbids everything, as those of board games do.
    """

    observation_space = Dict(place=Box(0.0, LENGTH, (1,)), action_mask=MultiBinary(5))
    action_space = MultiDiscrete([2, 3])

    def __init__(self, step: int | None = None, choice: int = 0) -> None:
        self._stuck, self._choice = step, choice
        self._step = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        self._step = 0
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self._step += 1
        return self._look(), 1.0, self._step == LENGTH, False, {}

    def _look(self) -> dict[str, np.ndarray]:
        mask = np.array([1, 0, 0, 0, 1], np.int8)
        if self._step == self._stuck:
            mask[[slice(0, 2), slice(2, 5)][self._choice]] = 0
        if self._step == LENGTH:
            mask[:] = 0
        return {"place": np.full(1, self._step, np.float32), "action_mask": mask}


class NextStepStuck(gym.vector.SyncVectorEnv):
    """Two of them, of which the second gets stuck; the last observation of an episode is in the unroll."""

    def __init__(self, num_envs: int, **kwargs: Any) -> None:
        makers = [Stuck] * (num_envs - 1) + [lambda: Stuck(**kwargs)]
        super().__init__(makers, autoreset_mode=AutoresetMode.NEXT_STEP)
