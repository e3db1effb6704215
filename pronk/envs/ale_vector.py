"""Atari games through ale-py's native vector environment.

A lost life ends the episode for learning but not the game: the step is `terminated`, the next observation is `first`,
and play goes on. Reported returns are raw and of whole games. Rewards are clipped by the learner, not here.
"""

from __future__ import annotations

import dataclasses

import ale_py.roms
import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

from pronk.config import EnvConfig
from pronk.envs.gymnasium_vector import GymnasiumVector
from pronk.explain import nearest
from pronk.types import Array, Step, UserError


class AleVector(GymnasiumVector):
    """Atari with next-step resets: the true last observation of a game is seen, and one step per game is wasted."""

    def __init__(self, env: AtariVectorEnv, frame_skip: int) -> None:
        super().__init__(env)
        self.spec = dataclasses.replace(self.spec, frames_per_step=frame_skip)

    def reset(self, seeds: list[int]) -> Step:
        """Begin new games; ALE takes a 32-bit seed for each."""
        return self._begin(np.array([seed % 2**31 for seed in seeds], np.int64))

    def _over(self, terminated: Array, truncated: Array, info: dict[str, Array]) -> Array:
        """A game is over with its last life (or the frame limit); some games have no lives and count 0 throughout."""
        return truncated | (terminated & (info["lives"] == 0))


def make(config: EnvConfig, count: int) -> AleVector:
    """`env.game` with the preprocessing of `env.atari`."""
    games = sorted(ale_py.roms.get_all_rom_ids())
    if config.game not in games:
        raise UserError(f"env.game: no Atari game {config.game!r}{nearest(str(config.game), games)}")
    atari = config.atari
    env = AtariVectorEnv(
        config.game,
        count,
        num_threads=1,  # the actor's own core; more actors use more cores
        max_num_frames_per_episode=atari.max_frames,
        repeat_action_probability=atari.sticky,
        full_action_space=atari.full_actions,
        autoreset_mode=AutoresetMode.NEXT_STEP,
        img_height=atari.size,
        img_width=atari.size,
        grayscale=atari.grayscale,
        stack_num=atari.stack,
        frameskip=atari.frame_skip,
        noop_max=atari.noops,
        # Not `episodic_life`, which restarts the whole game at every lost life.
        life_loss_info=atari.life_loss_ends,
        reward_clipping=False,
        use_fire_reset=atari.fire_reset,
    )
    return AleVector(env, atari.frame_skip)
