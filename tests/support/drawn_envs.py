"""Environments that draw themselves in various ways, each with what it shows known beforehand."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode


class Counter(gym.Env):
    """Episodes of `length` steps, each paying 1; its picture is as bright as the step's number."""

    observation_space, action_space = spaces.Box(-np.inf, np.inf, (3,), np.float32), spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - as Gymnasium has it

    def __init__(self, length: int = 5, draws: str = "rgb", render_mode: str | None = None) -> None:
        self._length, self._draws, self.render_mode = length, draws, render_mode
        self._t = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._t = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self._t += 1
        return np.full(3, self._t, np.float32), 1.0, self._t == self._length, False, {}

    def render(self):
        if self._draws == "text":
            return f"<{self._t}>"
        if self._draws == "nothing":
            raise NotImplementedError
        shape = {"rgb": (8, 12, 3), "grey": (8, 12), "rgba": (8, 12, 4)}[self._draws]
        return np.full(shape, 10 * self._t, np.uint8)


class Plain(Counter):
    """Takes no `render_mode`."""

    def __init__(self, length: int = 5) -> None:
        super().__init__(length)


class Blind(gym.Env):
    """Does not draw at all."""

    observation_space, action_space = spaces.Box(0, 1, (4, 4), np.float32), spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        self._t = 0
        return np.zeros((4, 4), np.float32), {}

    def step(self, action):
        self._t += 1
        return np.full((4, 4), self._t / 3, np.float32), 0.5, self._t == 3, False, {}


class ManyCounters(gym.vector.SyncVectorEnv):
    """A vector class that resets in the step after the last."""

    def __init__(self, num_envs: int, render_mode: str | None = None) -> None:
        super().__init__([lambda: Counter(render_mode=render_mode)] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)
