"""Atari games through ale-py's native vector environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gymnasium.vector import AutoresetMode

from pronk.config import EnvConfig
from pronk.config.named import import_extra
from pronk.envs.atari import AtariVector, check_game

if TYPE_CHECKING:
    from ale_py.vector_env import AtariVectorEnv


def make(config: EnvConfig, count: int) -> AtariVector:
    """Make `env.game` with the preprocessing of `env.atari`."""
    return AtariVector(games(config, count), config)


def games(config: EnvConfig, count: int, screen: tuple[int, int] | None = None) -> AtariVectorEnv:
    """Make the games as the agent sees them; with `screen` (height, width), in colour and unstacked, for pictures."""
    import_extra("ale_py", f"env.id={config.id}", "atari")
    from ale_py.roms import get_all_rom_ids
    from ale_py.vector_env import AtariVectorEnv

    atari = config.atari
    height, width = screen or (atari.size, atari.size)
    return AtariVectorEnv(
        check_game(config, sorted(get_all_rom_ids())),
        count,
        num_threads=1,  # one core per actor; more actors use more cores
        max_num_frames_per_episode=atari.max_frames,
        repeat_action_probability=atari.sticky,
        full_action_space=atari.full_actions,
        autoreset_mode=AutoresetMode.NEXT_STEP,
        img_height=height,
        img_width=width,
        grayscale=atari.grayscale and not screen,
        stack_num=1 if screen else atari.stack,
        frameskip=atari.frame_skip,
        noop_max=atari.noops,
        # Lives are counted by `AtariVector`.
        episodic_life=False,
        life_loss_info=False,
        reward_clipping=False,
        use_fire_reset=atari.fire_reset,
    )
