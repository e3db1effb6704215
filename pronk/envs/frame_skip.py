"""How many emulator frames one step of an environment takes."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

NAMES = ("frameskip", "frame_skip", "_frameskip", "_frame_skip")
WRAPPER_NAMES = (*NAMES, "skip", "_skip")  # MaxAndSkipObservation, and the usual user's wrapper


def frames_per_step(env: Any) -> int:
    """Return the frame skip of an environment, single or vector, times those of its wrappers; 1 if none is declared.

    An environment declares it in the arguments it was made with (`ALE/Pong-v5` is registered with frameskip=4,
    `env.kwargs` may override it), in an attribute (MuJoCo, ViZDoom) or in its metadata.
    """
    frames = 1
    while isinstance(env, gym.Wrapper | gym.vector.VectorWrapper):
        frames *= skip_of_wrapper(env)
        env = env.env
    arguments = getattr(getattr(env, "spec", None), "kwargs", None) or {}
    metadata = getattr(env, "metadata", None) or {}
    return frames * _as_count(
        *(arguments.get(name) for name in NAMES),
        *(getattr(env, name, None) for name in NAMES),
        *(metadata.get(name) for name in NAMES),
    )


def skip_of_wrapper(wrapper: Any) -> int:
    """Return how many steps of its environment one step of a wrapper takes; 1 where it does not say."""
    return _as_count(*(getattr(wrapper, name, None) for name in WRAPPER_NAMES))


def _as_count(*candidates: Any) -> int:
    """Return the first that is a frame skip: a number, or ALE's (low, high), of which high is never drawn."""
    for candidate in candidates:
        match candidate:
            case bool():
                continue
            case int() if candidate >= 1:
                return candidate
            case (int(low), int(high)) if 1 <= low < high:
                return round((low + high - 1) / 2)
    return 1
