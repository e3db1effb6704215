"""Atari games, whichever backend plays them: what a lost life is, what a game is, and what a step costs in frames.

A lost life ends the episode for learning but not the game: the step's discount is 0, the next observation is `first`,
and play goes on. Reported returns are raw and of whole games. Rewards are clipped by the learner, not here.

Lives are counted here and not by the backends, whose own ways differ and have traps: ale-py's `episodic_life` restarts
the whole game, its `life_loss_info` hides a frame limit that is reached in the same step, and EnvPool's `episodic_life`
spends the next step on idle frames whose rewards are lost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from pronk.config.errors import nearest
from pronk.config.knobs import AtariConfig, EnvConfig
from pronk.config.named import find
from pronk.envs.gymnasium_vector import GymnasiumVector
from pronk.types import Array, Step, UserError

# How each backend makes its games: a function (EnvConfig, count) -> AtariVector.
BACKENDS = {
    "ale": "pronk.envs.ale_vector:make",
    "envpool": "pronk.envs.envpool_vector:make",
}


def make(config: EnvConfig, count: int) -> GymnasiumVector:
    """`env.game` with the preprocessing of `env.atari`, played by its backend."""
    backend: Callable[[EnvConfig, int], GymnasiumVector] = find("env.atari.backend", config.atari.backend, BACKENDS)
    return backend(config, count)


class AtariVector(GymnasiumVector):
    """Atari with next-step resets: the true last observation of a game is seen, and one step per game is wasted."""

    def __init__(self, env: gym.vector.VectorEnv, atari: AtariConfig) -> None:
        super().__init__(Lives(env, atari.life_loss_ends))
        self.spec = dataclasses.replace(self.spec, frames_per_step=atari.frame_skip)

    def reset(self, seeds: list[int]) -> Step:
        """Begin new games; emulators take a seed of 31 bits each."""
        return self._begin(np.array([seed % 2**31 for seed in seeds], np.int64))

    def _over(self, terminated: Array, truncated: Array, info: dict[str, Array]) -> Array:
        """Where the game is over, not only a life lost."""
        return info["game_over"]


class Lives(gym.vector.VectorWrapper):
    """Games that terminate with every life.

    Wraps a vector environment that terminates only with the game and reports `lives`; adds `game_over`, true where the
    game ended or was cut off.
    """

    def __init__(self, env: gym.vector.VectorEnv, life_loss_ends: bool) -> None:
        super().__init__(env)
        self._life_loss_ends = life_loss_ends
        self._lives = np.zeros(env.num_envs, np.int64)
        self._game_over = np.zeros(env.num_envs, bool)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin new games."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._lives = np.array(info["lives"])
        self._game_over = np.zeros(self.num_envs, bool)
        return observation, info

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Play. Fewer lives than before are a loss, except where another game began; none left is not (yet) one: some
        games go on for a few frames before they are over."""
        observation, reward, terminated, truncated, info = self.env.step(actions)
        lives = np.array(info["lives"])
        lost = (lives > 0) & (lives < self._lives) & ~self._game_over
        self._lives, self._game_over = lives, terminated | truncated
        if self._life_loss_ends:
            terminated = terminated | lost
        return observation, reward, terminated, truncated, info | {"game_over": self._game_over}


def check_game(config: EnvConfig, games: list[str]) -> str:
    """The name of a game that there is."""
    if config.game is None:
        raise UserError("env.game: which game? Such as env.game=breakout")
    if config.game not in games:
        raise UserError(f"env.game: no Atari game {config.game!r}{nearest(config.game, games)}")
    return config.game
