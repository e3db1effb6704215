"""Wrappers that change the entries of an observation: its arrays, or those of a Dict, one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from pronk.config.errors import nearest
from pronk.envs.words import is_text
from pronk.types import Array, UserError

Change = Callable[[Array], Array]


class Entries(gym.ObservationWrapper):
    """Changes every Box of an observation that `change_of` has a change for; all else stays as it is.

    `change_of(path, space)` returns the new space and a function for the arrays, or None.
    """

    def __init__(
        self, env: gym.Env, change_of: Callable[[str, gym.spaces.Box], tuple[gym.spaces.Box, Change] | None]
    ) -> None:
        super().__init__(env)
        self.changed: list[str] = []  # paths
        self.notes: tuple[str, ...] = ()  # `wrappers.notes_of` collects them
        self._change_of = change_of
        self.observation_space, self._change = self._changed(env.observation_space, "")

    def observation(self, observation: Any) -> Any:
        """Return the observation with its entries changed."""
        return self._change(observation)

    def _changed(self, space: gym.Space, path: str) -> tuple[gym.Space, Callable[[Any], Any]]:
        match space:
            case gym.spaces.Dict():
                below = f"{path}." if path else ""
                parts = {key: self._changed(part, f"{below}{key}") for key, part in space.spaces.items()}
                changes = {key: change for key, (_, change) in parts.items()}
                changed = gym.spaces.Dict({key: part for key, (part, _) in parts.items()})
                return changed, lambda values: {key: change(values[key]) for key, change in changes.items()}
            case gym.spaces.Box():
                change = self._change_of(path or "observation", space)
                if change is not None:
                    self.changed.append(path or "observation")
                    return change
        return space, lambda value: value


def keys(env: gym.Env, keep: list[str] | str | None = None, drop: list[str] | str | None = None) -> gym.Env:
    """Keep, or drop, some entries of a Dict observation."""
    space = env.observation_space
    if not isinstance(space, gym.spaces.Dict):
        raise UserError(f"the observation is a {type(space).__name__}, not a Dict")
    if (keep is None) == (drop is None):
        raise UserError(f"needs either keep or drop; the observation has {', '.join(space.spaces)}")
    named = keep if keep is not None else drop
    names = [named] if isinstance(named, str) else list(named or [])
    for name in names:
        if name not in space.spaces:
            hint = nearest(str(name), space.spaces)
            raise UserError(f"the observation has no {name!r}{hint}; it has {', '.join(space.spaces)}")
    kept = names if keep is not None else [name for name in space.spaces if name not in names]
    if not kept:
        raise UserError("nothing of the observation is left")
    return gym.wrappers.FilterObservation(env, kept)


def flatten(env: gym.Env) -> gym.Env:
    """Join all entries into one vector; labels become one-hot."""
    space = env.observation_space
    texts = [key for key, part in getattr(space, "spaces", {}).items() if is_text(part)] if _is_dict(space) else []
    if texts or is_text(space):
        raise UserError(f"cannot flatten text{f' ({texts[0]}); drop it with keys' if texts else ''}")
    return gym.wrappers.FlattenObservation(env)


def _is_dict(space: gym.Space) -> bool:
    return isinstance(space, gym.spaces.Dict)


def normalise(env: gym.Env, mean: Any = None, scale: Any = None) -> gym.Env:
    """Shift and scale numbers: from the bounds of their space to [-1, 1], or to (x - mean) / scale.

    For a running mean use network.normalise, which is saved with the weights.
    """

    def change_of(path: str, space: gym.spaces.Box) -> tuple[gym.spaces.Box, Change] | None:
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        if mean is None and scale is None:
            if not (np.isfinite(low).all() and np.isfinite(high).all()):
                raise UserError(f"{path} has no bounds; give mean and scale")
            middle, reach = (low + high) / 2, np.maximum((high - low) / 2, 1e-8)
        else:
            middle = np.asarray(0.0 if mean is None else mean, np.float64)
            reach = np.asarray(1.0 if scale is None else scale, np.float64)
        least, most = (((bound - middle) / reach).astype(np.float32) for bound in (low, high))
        return _box(least, most), lambda array: ((array - middle) / reach).astype(np.float32)

    return _some_change(Entries(env, change_of))


def clip(env: gym.Env, high: float, low: float | None = None) -> gym.Env:
    """Clip the numbers of an observation to [low, high]; low is -high unless given."""
    least, most = float(-high if low is None else low), float(high)
    if least >= most:
        raise UserError(f"low ({least:g}) must be below high ({most:g})")

    def change_of(path: str, space: gym.spaces.Box) -> tuple[gym.spaces.Box, Change] | None:
        if not np.issubdtype(space.dtype, np.floating):
            return None
        return _box(np.clip(space.low, least, most), np.clip(space.high, least, most)), (
            lambda array: np.clip(array, least, most)
        )

    return _some_change(Entries(env, change_of))


def pad(env: gym.Env, shape: list[int]) -> gym.Env:
    """Append zeros to every array with as many axes as `shape`, so that it has this shape.

    Tasks of one set of weights need observations of one shape: MinAtar's games have 4 to 10 channels.
    """
    if not (isinstance(shape, list) and shape and all(type(size) is int and size > 0 for size in shape)):
        raise UserError(f"shape must be a list of sizes, such as [10, 10, 10], got {shape!r}")

    def change_of(path: str, space: gym.spaces.Box) -> tuple[gym.spaces.Box, Change] | None:
        if len(space.shape) != len(shape):
            return None
        if any(size > wanted for size, wanted in zip(space.shape, shape, strict=True)):
            raise UserError(f"{path} has the shape {list(space.shape)}, which does not fit into {shape}")
        inside = tuple(slice(size) for size in space.shape)

        def padded(array: Array) -> Array:
            filled = np.zeros(shape, space.dtype)
            filled[inside] = array
            return filled

        return _box(padded(space.low), padded(space.high)), padded

    return _some_change(Entries(env, change_of))


def _some_change(env: Entries) -> gym.Env:
    if not env.changed:
        raise UserError(f"the observation has no numbers that it could change: {env.observation_space}")
    return env


def _box(low: Array, high: Array) -> gym.spaces.Box:
    return gym.spaces.Box(low, high, low.shape, low.dtype.type)
