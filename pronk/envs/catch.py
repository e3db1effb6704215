"""Catch: a ball falls, and the paddle must be under it. N games at once in NumPy, for tests and first steps.

An episode lasts `rows` - 1 steps and pays +1 or -1 at its end (bsuite's task as a vector environment).
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from pronk.config import EnvConfig
from pronk.envs.base import VectorEnv
from pronk.envs.gymnasium_vector import adapt
from pronk.types import UserError

CELL = 20  # pixels per side of a board's cell
GROUND, GRID, BALL, PADDLE = (24, 28, 40), (44, 50, 66), (230, 159, 0), (86, 180, 233)


class CatchVectorEnv(gym.vector.VectorEnv):
    """N boards of rows x columns; the actions are left, stay, right. A finished board resets in the same step."""

    def __init__(self, num_envs: int, rows: int = 10, columns: int = 5, render_mode: str | None = None) -> None:
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.num_envs, self._rows, self._columns = num_envs, rows, columns
        self._picture_shape = (rows * CELL, columns * CELL, 3)
        self.single_observation_space = gym.spaces.Box(0.0, 1.0, (rows, columns), np.float32)
        self.single_action_space = gym.spaces.Discrete(3)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._row, self._ball, self._paddle = np.zeros((3, num_envs), np.int64)
        self.render_mode = render_mode
        self._shown: np.ndarray | None = None  # the boards before the finished ones were reset

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Drop a ball on every board."""
        if seed is not None:
            self._np_random = np.random.default_rng(seed)
        self._drop(np.ones(self.num_envs, bool))
        self._shown = self._board()
        return self._board(), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Move the paddles by -1, 0 or +1 and let the balls fall one row."""
        self._paddle = np.clip(self._paddle + actions - 1, 0, self._columns - 1)
        self._row += 1
        terminated = self._row == self._rows - 1
        caught = np.where(self._paddle == self._ball, 1.0, -1.0)
        reward = np.where(terminated, caught, 0.0)
        if self.render_mode:
            self._shown = self._board()
        self._drop(terminated)
        return self._board(), reward, terminated, np.zeros(self.num_envs, bool), {}

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Return a picture of each board: the ball and the paddle, light on dark."""
        if self.render_mode != "rgb_array" or self._shown is None:
            return None
        pictures = np.full((*self._shown.shape, CELL, CELL, 3), GROUND, np.uint8)
        pictures[self._shown > 0] = BALL
        pictures[:, -1][self._shown[:, -1] > 0] = PADDLE
        pictures[:, :, :, -1], pictures[:, :, :, :, -1] = GRID, GRID
        return tuple(pictures.transpose(0, 1, 3, 2, 4, 5).reshape(self.num_envs, *self._picture_shape))

    def _drop(self, where: np.ndarray) -> None:
        self._row[where] = 0
        self._ball[where] = self.np_random.integers(self._columns, size=int(where.sum()))
        self._paddle[where] = self._columns // 2

    def _board(self) -> np.ndarray:
        board = np.zeros((self.num_envs, self._rows, self._columns), np.float32)
        every = np.arange(self.num_envs)
        board[every, self._row, self._ball] = 1.0
        board[every, self._rows - 1, self._paddle] = 1.0
        return board


def make(config: EnvConfig, count: int) -> VectorEnv:
    """Make N boards; `env.kwargs` may set rows and columns."""
    return adapt(boards(config, count))


def boards(config: EnvConfig, count: int, render_mode: str | None = None) -> CatchVectorEnv:
    """Make the Gymnasium vector environment."""
    unknown = [key for key in config.kwargs if key not in ("rows", "columns")]
    small = [f"{key}={value}" for key, value in config.kwargs.items() if not isinstance(value, int) or value < 2]
    if unknown or small:
        raise UserError(
            f"env.kwargs: wrong for catch: {', '.join(unknown or small)}; it takes rows and columns, each at least 2"
        )
    return CatchVectorEnv(count, **config.kwargs, render_mode=render_mode)
