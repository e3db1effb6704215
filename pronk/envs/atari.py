"""Atari games with either backend.

A lost life ends the episode for learning but not the game: the step's discount is 0, the next observation is `first`,
and the game continues. Reported returns are raw and of whole games. Rewards are clipped by the learner, not here.

Lives are counted here and not by the backends, which differ and have traps: ale-py's `episodic_life` restarts the game,
its `life_loss_info` hides a frame limit that is reached in the same step, and EnvPool's `episodic_life` spends the next
step on idle frames and drops their rewards.

Some games wait for the fire button, at their start and after every lost life. There a policy that plays its likeliest
action may wait for ever, so fire is pressed for the agent in the first step of a life. To the agent this is a property
of the game, like no-ops: an observation after which its action has no effect. So the step stays valid.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from pronk.config.errors import nearest
from pronk.config.knobs import EnvConfig
from pronk.config.named import find
from pronk.envs.gymnasium_vector import NextStepVector
from pronk.types import Array, Step, UserError

# How each backend makes its games: a function (EnvConfig, count) -> AtariVector.
BACKENDS = {
    "ale": "pronk.envs.ale_vector:make",
    "envpool": "pronk.envs.envpool_vector:make",
}

FIRE = 1  # in the action set of every game that has the button and counts lives
WITHOUT_FIRE = {
    *("asterix", "crazy_climber", "freeway", "frogger", "journey_escape", "koolaid", "kung_fu_master", "lost_luggage"),
    *("ms_pacman", "pacman", "skiing", "surround", "tutankham"),
}


def make(config: EnvConfig, count: int) -> AtariVector:
    """Make `env.game` with the preprocessing of `env.atari`."""
    backend: Callable[[EnvConfig, int], AtariVector] = find("env.atari.backend", config.atari.backend, BACKENDS)
    return backend(config, count)


class AtariVector(NextStepVector):
    """Atari games with next-step resets: each game shows its true last observation and then wastes one step."""

    def __init__(self, env: gym.vector.VectorEnv, config: EnvConfig) -> None:
        fires = config.atari.fire_reset and config.game not in WITHOUT_FIRE
        super().__init__(Lives(env, config.atari.life_loss_ends, fires))
        self.spec = dataclasses.replace(self.spec, frames_per_step=config.atari.frame_skip)

    def reset(self, seeds: list[int]) -> Step:
        """Start new games; each emulator takes a seed."""
        return self._reset(np.array(seeds, np.int64))

    def _over(self, terminated: Array, truncated: Array, info: dict[str, Array]) -> Array:
        """Return where the game is over, not only a life lost."""
        return info["game_over"]


class Lives(gym.vector.VectorWrapper):
    """Makes games terminate with every life, and presses fire at the start of the next one.

    Wraps a vector environment that terminates only with the game and reports `lives`. Adds `game_over` to the info,
    true where the game ended or was truncated. `fires`: whether the game has a fire button, and it should be pressed.
    """

    def __init__(self, env: gym.vector.VectorEnv, life_loss_ends: bool, fires: bool) -> None:
        super().__init__(env)
        self._life_loss_ends, self._fires = life_loss_ends, fires
        self._lives = np.zeros(env.num_envs, np.int64)
        self._lost = np.zeros(env.num_envs, bool)
        self._game_over = np.zeros(env.num_envs, bool)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start new games."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._lives = np.array(info["lives"])
        self._lost = np.zeros(self.num_envs, bool)
        self._game_over = np.zeros(self.num_envs, bool)
        return observation, info

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Play, and terminate where a life was lost.

        Fewer lives than before mean a loss, except where a new game started. No life left does not: some games continue
        for a few frames before they are over.
        """
        if self._fires:
            actions = np.where(self._lost & ~self._game_over, FIRE, actions)
        observation, reward, terminated, truncated, info = self.env.step(actions)
        lives = np.array(info["lives"])
        self._lost = (lives > 0) & (lives < self._lives) & ~self._game_over
        self._lives, self._game_over = lives, terminated | truncated
        if self._life_loss_ends:
            terminated = terminated | self._lost
        return observation, reward, terminated, truncated, info | {"game_over": self._game_over}


def check_game(config: EnvConfig, games: list[str]) -> str:
    """Return the configured game if it is one of these."""
    if config.game is None:
        raise UserError("env.game is required with env.id=atari, for example env.game=breakout")
    if config.game not in games:
        raise UserError(f"env.game: there is no Atari game {config.game!r}{nearest(config.game, games)}")
    return config.game
