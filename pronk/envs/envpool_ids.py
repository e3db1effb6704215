"""`envpool:ID`: every environment of EnvPool, an optional extra, stepped by EnvPool's own vector.

`env.kwargs` are EnvPool's options for the task. EnvPool takes its seeds when it is made, so environments are made at
`reset`. Two things of its spaces are translated: numbers without bounds, which it declares from the smallest to the
largest positive float, and MiniGrid's mission, which it gives as bytes.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from pronk.config import EnvConfig
from pronk.config.errors import nearest
from pronk.config.named import import_extra
from pronk.envs.gymnasium_vector import NextStepVector
from pronk.envs.wrappers import refuse_wrappers
from pronk.types import Array, Step, UserError

PREFIX = "envpool:"
NOT_SETTINGS = {"num_envs", "batch_size", "num_threads", "seed", "env_seed", "base_path", "gym_reset_return_info"}
TEXTS = {"mission"}  # entries of bytes that hold text, filled up with zeros


def make(config: EnvConfig, count: int) -> PooledVector:
    """Make `envpool:ID` with EnvPool's own settings."""
    envpool = import_extra("envpool", f"env.id={config.id}", "envpool")
    task = config.id.removeprefix(PREFIX)
    known = envpool.list_all_envs()
    if task not in known:
        raise UserError(f"env.id: EnvPool knows no environment {task!r}{nearest(task, known)}")
    refuse_wrappers(config, "EnvPool has options of its own for many of its environments: env.kwargs")
    return PooledVector(Pool(envpool, task, count, config))


class PooledVector(NextStepVector):
    """EnvPool's environments: each takes a seed, and resets in the step after the one that ended its episode."""

    def reset(self, seeds: list[int]) -> Step:
        """Make new environments; one seed of 31 bits for each."""
        return self._reset(seeds)


class Pool(gym.vector.VectorEnv):
    """EnvPool as a Gymnasium vector environment."""

    def __init__(self, envpool: Any, task: str, count: int, config: EnvConfig) -> None:
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.num_envs = count
        self._make = functools.partial(envpool.make_gymnasium, task, num_envs=count, num_threads=1, **config.kwargs)
        self._pool: Any = None
        spec = checked_spec(envpool, task, config)
        self.frame_skip = getattr(spec.config, "frame_skip", 1)  # `frame_skip.py` reads it
        self.single_observation_space = translated(spec.gymnasium_observation_space)
        self.single_action_space = translated(spec.gymnasium_action_space)
        self.observation_space = batch_space(self.single_observation_space, count)
        self.action_space = batch_space(self.single_action_space, count)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Make new environments."""
        self.close_extras()
        self._pool = self._make(seed=[int(one) for one in seed])
        observation, _ = self._pool.reset()
        return readable(observation), {}

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Play one action in each."""
        kind = np.int32 if np.issubdtype(actions.dtype, np.integer) else actions.dtype
        observation, reward, terminated, truncated, _ = self._pool.step(actions.astype(kind, copy=False))
        return readable(observation), reward, terminated, truncated, {}

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def checked_spec(envpool: Any, task: str, config: EnvConfig) -> Any:
    """Return EnvPool's description of a task; raise `UserError` for settings or tasks that do not fit."""
    try:
        spec = envpool.make_spec(task, **config.kwargs)
    except TypeError as error:
        unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if unknown is None:
            raise
        accepted = [name for name in envpool.make_spec(task).config._fields if name not in NOT_SETTINGS]
        hint = nearest(unknown[1], accepted)
        raise UserError(
            f"env.kwargs: {config.id} takes no {unknown[1]!r}{hint}; it takes {', '.join(accepted)}"
        ) from None
    except (ImportError, FileNotFoundError) as error:  # some tasks need libraries of the system
        raise UserError(f"env.id: {config.id} cannot be made: {' '.join(str(error).split())}") from None
    players = spec.config.max_num_players
    if players != 1:
        raise UserError(f"env.id: {config.id} has {players} players; only environments of one are supported")
    return spec


def translated(space: gym.Space, key: str = "") -> gym.Space:
    """Return a space of EnvPool with its true bounds, and text where it holds text."""
    match space:
        case gym.spaces.Dict():
            return gym.spaces.Dict({key: translated(part, key) for key, part in space.spaces.items()})
        case gym.spaces.Box() if key in TEXTS and space.dtype == np.uint8 and len(space.shape) == 1:
            return gym.spaces.Text(space.shape[0])
        case gym.spaces.Box() if np.issubdtype(space.dtype, np.floating):
            limits = np.finfo(space.dtype)
            low = np.where(space.low == limits.tiny, -np.inf, space.low).astype(space.dtype)
            high = np.where(space.high == limits.max, np.inf, space.high).astype(space.dtype)
            return gym.spaces.Box(low, high, space.shape, space.dtype.type)
    return space


def readable(observation: Any, key: str = "") -> Any:
    """Return an observation of EnvPool with text where its space says so."""
    if isinstance(observation, dict):
        return {key: readable(part, key) for key, part in observation.items()}
    if key in TEXTS and observation.dtype == np.uint8 and observation.ndim == 2:
        return [row.tobytes().rstrip(b"\0").decode(errors="replace") for row in observation]
    return observation
