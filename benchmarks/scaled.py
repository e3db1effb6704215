"""Environments whose rewards and observations are multiplied: for `scale_free.py` and `many_tasks.py`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


def scaled(id: str, reward: float = 1.0, observation: float = 1.0, **kwargs: Any) -> gym.Env:
    """Make a Gymnasium environment, and multiply every reward and every observation."""
    env = gym.make(id, **kwargs)
    if observation != 1.0:
        space = env.observation_space
        assert isinstance(space, gym.spaces.Box)
        low, high = (np.float32(observation * bound) for bound in (space.low, space.high))
        wide = gym.spaces.Box(low, high, dtype=np.float32)
        env = gym.wrappers.TransformObservation(env, lambda value: np.float32(observation * value), wide)
    return gym.wrappers.TransformReward(env, lambda value: reward * float(value))


def rewards(env: gym.Env, factor: float) -> gym.Env:
    """Multiply every reward: a wrapper, as `env.wrappers=[{scaled:rewards: 100}]`."""
    return gym.wrappers.TransformReward(env, lambda value: factor * float(value))
