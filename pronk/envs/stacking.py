"""Wrappers that work through time: stacked observations, skipped frames, a limit of steps."""

from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium as gym
import numpy as np

from pronk.types import UserError


class Stack(gym.Wrapper):
    """Shows the last observations together: every Box gets a leading axis, oldest first.

    A gray image [H, W, 1] becomes [size, H, W]. An episode begins with copies of its first observation. What is not a
    Box (labels, text) is the newest one only.
    """

    def __init__(self, env: gym.Env, size: int) -> None:
        super().__init__(env)
        self._seen: deque[Any] = deque(maxlen=size)
        self.observation_space = self._stacked_space(env.observation_space, size)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Open an episode."""
        observation, info = self.env.reset(**kwargs)
        self._seen.extend([observation] * (self._seen.maxlen or 1))
        return self._stacked(list(self._seen)), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play one action."""
        observation, *rest = self.env.step(action)
        self._seen.append(observation)
        return self._stacked(list(self._seen)), *rest

    def _stacked_space(self, space: gym.Space, size: int) -> gym.Space:
        if isinstance(space, gym.spaces.Dict):
            return gym.spaces.Dict({key: self._stacked_space(part, size) for key, part in space.spaces.items()})
        if not isinstance(space, gym.spaces.Box):
            return space
        low, high = (_joined([bound] * size) for bound in (space.low, space.high))
        return gym.spaces.Box(low, high, low.shape, space.dtype.type)

    def _stacked(self, seen: list[Any], space: gym.Space | None = None) -> Any:
        space = space or self.env.observation_space
        if isinstance(space, gym.spaces.Dict):
            return {key: self._stacked([one[key] for one in seen], part) for key, part in space.spaces.items()}
        return _joined(seen) if isinstance(space, gym.spaces.Box) else seen[-1]


def _joined(arrays: list[Any]) -> Any:
    stacked = np.stack(arrays)
    return stacked[..., 0] if stacked.ndim == 4 and stacked.shape[-1] == 1 else stacked


class Skip(gym.Wrapper):
    """Repeats each action, sums the rewards, and shows the last observation."""

    def __init__(self, env: gym.Env, frames: int) -> None:
        super().__init__(env)
        self._skip = frames  # `frame_skip.py` reads it

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play one action several times, or until the episode ends."""
        total = 0.0
        for _ in range(self._skip):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


def stack(env: gym.Env, size: int) -> gym.Env:
    """Show the last `size` observations together."""
    return Stack(env, _at_least_1("size", size))


def skip(env: gym.Env, frames: int) -> gym.Env:
    """Repeat each action for `frames` frames."""
    return Skip(env, _at_least_1("frames", frames))


def time_limit(env: gym.Env, steps: int) -> gym.Env:
    """Truncate episodes after `steps` steps."""
    return gym.wrappers.TimeLimit(env, _at_least_1("steps", steps))


def _at_least_1(name: str, value: Any) -> int:
    if type(value) is not int or value < 1:
        raise UserError(f"{name} must be a whole number of at least 1, got {value!r}")
    return value
