"""Gymnasium's spaces <-> Pronk's specs, and the values that go with them.

To support another observation space, add a case to `observation_encoder`; for another action space, one
to `action_decoder`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from pronk.envs.words import encode_texts, is_text, text_spec
from pronk.types import ActionSpec, Array, ArraySpec, Tree, UserError, leaves

Encoder = Callable[[Any], Tree]
Decoder = Callable[[Array], Array]


class Translation(NamedTuple):
    """What an environment's two spaces become in Pronk."""

    observation: Tree  # of ArraySpec
    action: ActionSpec
    encode: Encoder
    """Observations of the environment, single or batched, as a tree of arrays."""
    decode: Decoder
    """Batched actions of the agent in the environment's units."""


def translation(observation_space: gym.Space, action_space: gym.Space) -> Translation:
    """Translate the spaces of a single environment; raise `UserError` for those that are not supported."""
    observation, encode = observation_encoder(observation_space)
    action, decode = action_decoder(action_space)
    check_not_empty(observation)
    check_action_mask(observation, action)
    return Translation(observation, action, encode, decode)


def observation_encoder(space: gym.Space, path: str = "observation") -> tuple[Tree, Encoder]:
    """Return the spec of an observation space, and a function from observations of it to a tree of arrays.

    The function takes single and batched observations alike.
    """
    match space:
        case gym.spaces.Dict():
            return _join({key: observation_encoder(part, f"{path}.{key}") for key, part in space.spaces.items()})
        case gym.spaces.Tuple():
            parts = [observation_encoder(part, f"{path}.{index}") for index, part in enumerate(space.spaces)]
            spec, encode = _join({str(index): part for index, part in enumerate(parts)})
            return spec, lambda values: encode({str(index): value for index, value in enumerate(values)})
        case gym.spaces.Discrete():
            start = space.start
            spec = ArraySpec((), "int64", (int(space.n),))
            return spec, lambda values: np.asarray(values, np.int64) - start
        case gym.spaces.MultiDiscrete():
            starts = getattr(space, "start", 0)
            spec = ArraySpec(space.shape, "int64", tuple(int(n) for n in space.nvec.reshape(-1)))
            return spec, lambda values: np.asarray(values, np.int64) - starts
        case gym.spaces.MultiBinary():
            return ArraySpec(space.shape, "int8"), _as("int8")
        case gym.spaces.Box():
            dtype = np.dtype("float32" if np.issubdtype(space.dtype, np.floating) else space.dtype).name
            return ArraySpec(space.shape, dtype), _as(dtype)
        case _ if is_text(space):
            spec = text_spec(space)
            return spec, lambda values: encode_texts(values, spec.size)
    raise UserError(
        f"{path}: {_kind(space)} spaces are not supported; "
        "supported are Box, Discrete, MultiDiscrete, MultiBinary, Text, Dict and Tuple"
    )


def action_decoder(space: gym.Space) -> tuple[ActionSpec, Decoder]:
    """Return the spec of an action space, and a function from the agent's batched actions to the environment's."""
    if 0 in (space.shape or ()):
        raise UserError(f"action: {space} is empty; the agent needs at least one number or option to choose")
    match space:
        case gym.spaces.Discrete():
            start = int(space.start)
            return ActionSpec((), (int(space.n),)), (lambda action: action + start) if start else _unchanged
        case gym.spaces.MultiDiscrete() if len(space.shape) == 1:
            starts, dtype = getattr(space, "start", np.zeros_like(space.nvec)), space.dtype
            choices = tuple(int(n) for n in space.nvec)
            return ActionSpec(space.shape, choices), lambda action: (action + starts).astype(dtype)
        case gym.spaces.MultiBinary() if len(space.shape) == 1:
            return ActionSpec(space.shape, (2,) * space.shape[0]), lambda action: action.astype(space.dtype)
        case gym.spaces.Box() if np.issubdtype(space.dtype, np.floating):
            return ActionSpec(space.shape), _box_decoder(space)
    raise UserError(
        f"action: {_kind(space)} spaces are not supported; "
        "supported are Discrete, MultiDiscrete and MultiBinary of one dimension, and Box of floats"
    )


def action_encoder(space: gym.Space) -> tuple[ActionSpec, Decoder]:
    """Return the spec of an action space, and a function from the environment's batched actions to the agent's."""
    spec, _ = action_decoder(space)
    if isinstance(space, gym.spaces.Box):
        middle, reach = _middle_and_reach(space)
        safe = np.where(reach > 0, reach, 1.0)  # an action that cannot differ
        return spec, lambda action: ((np.asarray(action, np.float64) - middle) / safe).astype(np.float32)
    start = getattr(space, "start", 0)
    return spec, lambda action: np.asarray(action, np.int64) - start


def _middle_and_reach(space: gym.spaces.Box) -> tuple[Array, Array]:
    """Return what [-1, 1] is mapped to. A side without a bound is taken to be two units from the other."""
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    low_known, high_known = np.isfinite(low), np.isfinite(high)
    low = np.where(low_known, low, np.where(high_known, high - 2.0, -1.0))
    high = np.where(high_known, high, low + 2.0)
    return low / 2 + high / 2, high / 2 - low / 2


def _box_decoder(space: gym.spaces.Box) -> Decoder:
    """Map [-1, 1] to [low, high] and clip."""
    middle, reach = _middle_and_reach(space)

    def decode(action: Array) -> Array:
        return np.clip(middle + action * reach, space.low, space.high).astype(space.dtype)

    return decode


def check_not_empty(observation: Tree) -> None:
    """Raise `UserError` where an observation holds nothing but an action mask."""
    if not [path for path, _ in leaves(observation) if path != "action_mask"]:
        raise UserError("observation: it is empty; the agent needs at least one array to see")


def check_action_mask(observation: Tree, action: ActionSpec) -> None:
    """Raise `UserError` where an `action_mask` does not have one element for each option of each choice."""
    if not isinstance(observation, dict) or "action_mask" not in observation:
        return
    wanted = (sum(action.choices),)
    got = observation["action_mask"].shape
    if not action.choices or got != wanted:
        raise UserError(f"observation.action_mask has shape {got}; the action space needs {wanted}")


def check_shapes(observation: Tree, spec: Tree, source: str, *batch: int) -> None:
    """Raise `ValueError` where an array is not as the space says: NumPy would broadcast it into the unroll silently.

    `batch` are the axes before those of a single observation.
    """
    if _fits(observation, spec, batch):
        return
    for (path, array), (_, wanted) in zip(leaves(observation), leaves(spec), strict=True):
        if array.shape != (*batch, *wanted.shape):
            entry = f" {path}" if path else ""
            raise ValueError(
                f"{source} returned an observation{entry} of shape {array.shape[len(batch) :]}, "
                f"but its observation space says {wanted.shape}"
            )


def _fits(observation: Tree, spec: Tree, batch: tuple[int, ...]) -> bool:
    if isinstance(spec, dict):
        return all(_fits(observation[key], part, batch) for key, part in spec.items())
    return observation.shape == (*batch, *spec.shape)


def _join(parts: dict[str, tuple[Tree, Encoder]]) -> tuple[Tree, Encoder]:
    encoders = {key: encode for key, (_, encode) in parts.items()}
    spec = {key: part for key, (part, _) in parts.items()}
    return spec, lambda values: {key: encode(values[key]) for key, encode in encoders.items()}


def _as(dtype: str) -> Encoder:
    return lambda values: np.asarray(values, dtype)


def _unchanged(action: Array) -> Array:
    return action


def _kind(space: gym.Space) -> str:
    return f"{type(space).__name__} ({space})"
