"""`ALE/Pong-v5` and the like: played as `env.id=atari`, which is faster and has Atari's usual preprocessing."""

from __future__ import annotations

import gymnasium as gym

from pronk.config import EnvConfig
from pronk.config.named import import_extra
from pronk.envs.wrappers import DEFAULT


def as_atari(config: EnvConfig) -> EnvConfig:
    """Return the settings of `env.id=atari` for the same game, with the emulator's settings that the id stands for.

    Frame skip, sticky actions, the action set and the frame limit are the id's; size, stack, colours and lives are
    those of `env.atari`. With `env.kwargs` or wrappers of your own, the id is made as it is.
    """
    if config.kwargs or config.wrappers != DEFAULT:
        return config
    gym.register_envs(import_extra("ale_py", f"env.id={config.id}", "atari"))
    registration = gym.registry.get(config.id)
    settings = registration.kwargs if registration else {}
    frame_skip = settings.get("frameskip")
    if not isinstance(frame_skip, int) or settings.get("obs_type", "rgb") != "rgb":
        return config
    emulator = {
        "frame_skip": frame_skip,
        "sticky": settings.get("repeat_action_probability", 0.0),
        "full_actions": settings.get("full_action_space", False),
        "max_frames": settings.get("max_num_frames_per_episode", config.atari.max_frames),
    }
    atari = config.atari.model_copy(update=emulator)
    return config.model_copy(update={"id": "atari", "game": settings["game"], "atari": atari})


def describe_change(config: EnvConfig, played: EnvConfig) -> str:
    """Return a line for the user: how the id is played."""
    atari = played.atari
    colours = "gray" if atari.grayscale else "colour"
    return (
        f"{config.id}: played as env.id=atari env.game={played.game}: {colours} frames of {atari.size}x{atari.size}, "
        f"{atari.stack} at a time (env.atari; env.wrappers=[] for the raw screen)"
    )


def silence_banner() -> None:
    """Keep the emulator from printing its name and version for every game."""
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
