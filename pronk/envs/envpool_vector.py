"""Atari games through EnvPool, an optional extra.

EnvPool takes its seeds when it is made, so games are made at `reset`. It counts the limit of a game in steps, calls a
game truncated that ends in its last allowed step, and stacks colours along the channels. All three are translated here,
so a network trained with one backend plays with the other. Two differences remain at the start of a game: EnvPool plays
its no-ops before it presses fire, not after, and fills the stack with copies of the first frame, not with black ones.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from pronk.config.knobs import AtariConfig, EnvConfig
from pronk.envs.atari import AtariVector, check_game
from pronk.types import Array, UserError


class EnvPoolGames(gym.vector.VectorEnv):
    """N games that terminate only when they are over and report `lives` in the info."""

    def __init__(
        self, envpool: Any, game: str, count: int, atari: AtariConfig, screen: tuple[int, int] | None = None
    ) -> None:
        height, width = screen or (atari.size, atari.size)
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.num_envs = count
        self._make, self._task, self._options = envpool.make_gymnasium, task_of(game), options_of(atari)
        self._options |= {"img_height": height, "img_width": width}
        self._colours = None if atari.grayscale else (count, atari.stack, 3, height, width)
        self._pool: Any = None
        shape = (atari.stack, height, width) if atari.grayscale else (atari.stack, height, width, 3)
        self.single_observation_space = gym.spaces.Box(0, 255, shape, np.uint8)
        self.single_action_space = envpool.make_spec(self._task, **self._options).gymnasium_action_space
        self.observation_space = batch_space(self.single_observation_space, count)
        self.action_space = batch_space(self.single_action_space, count)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        """Make new games; one seed of 31 bits for each."""
        self.close_extras()
        seeds = [int(one) for one in seed]
        self._pool = self._make(self._task, num_envs=self.num_envs, num_threads=1, seed=seeds, **self._options)
        observation, info = self._pool.reset()
        return self._pictures(observation), {"lives": info["lives"]}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Play one action in each."""
        observation, _, _, truncated, info = self._pool.step(np.asarray(actions, np.int32))
        over = info["terminated"].astype(bool)
        return self._pictures(observation), info["reward"], over, truncated, {"lives": info["lives"]}

    def close_extras(self, **kwargs: Any) -> None:
        """Close the games."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _pictures(self, observation: Array) -> Array:
        """Return [N, stack, H, W], or [N, stack, H, W, 3] as a view of [N, stack x 3, H, W]."""
        if self._colours is None:
            return observation
        return observation.reshape(self._colours).transpose(0, 1, 3, 4, 2)


def options_of(atari: AtariConfig) -> dict[str, Any]:
    """Return the settings as arguments of EnvPool."""
    return {
        "max_episode_steps": -(-atari.max_frames // atari.frame_skip),  # ale-py ends within a step, too
        "repeat_action_probability": atari.sticky,
        "full_action_space": atari.full_actions,
        "img_height": atari.size,
        "img_width": atari.size,
        "gray_scale": atari.grayscale,
        "stack_num": atari.stack,
        "frame_skip": atari.frame_skip,
        # It draws from 1 to noop_max, counts pressing fire as one, and crashes at 0: a game without fire plays at least
        # one no-op.
        "noop_max": max(1, atari.noops),
        "use_fire_reset": atari.fire_reset,
        # `AtariVector` counts lives: EnvPool would play idle frames after each lost one, and drop their rewards.
        "episodic_life": False,
        "reward_clip": False,
    }


def task_of(game: str) -> str:
    """Return EnvPool's name of a game: `MsPacman-v5` for `ms_pacman`."""
    return "".join(word.capitalize() for word in game.split("_")) + "-v5"


def make(config: EnvConfig, count: int) -> AtariVector:
    """Make `env.game` with the preprocessing of `env.atari`."""
    return AtariVector(games(config, count), config)


def games(config: EnvConfig, count: int, screen: tuple[int, int] | None = None) -> EnvPoolGames:
    """Make the games as the agent sees them; with `screen` (height, width), in colour and unstacked, for pictures."""
    try:
        import envpool
        from envpool.atari.registration import atari_game_list
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "envpool":
            raise
        raise UserError("env.atari.backend=envpool needs the package envpool; pip install pronk[envpool]") from None
    game = check_game(config, atari_game_list)
    atari = config.atari.model_copy(update={"grayscale": False, "stack": 1}) if screen else config.atari
    return EnvPoolGames(envpool, game, count, atari, screen)
