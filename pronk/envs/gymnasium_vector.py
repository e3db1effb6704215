"""Gymnasium's native vector environments, and users' `VectorEnv` classes, as a `VectorEnv`.

Such a vector steps all of its environments at once and resets them itself. `metadata["autoreset_mode"]` says when:

    next-step   o_0 a_0 | o_1, the true last observation, a_1 (ignored) | o_2 opens the next episode
                Step 0 is valid, and bootstraps from o_1 if it was truncated. Step 1 only resets: it is not valid.
    same-step   o_0 a_0 | o_1 opens the next episode; the true last observation is in info["final_obs"]
                A terminated step is valid: its discount is 0. For truncated ones see `SameStepVector`.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from pronk.envs.autoreset import number_of
from pronk.envs.base import VectorEnv
from pronk.envs.frame_skip import frames_per_step
from pronk.envs.spaces import check_shapes, translation
from pronk.types import Array, EnvSpec, Step, Tree, UserError, assign, map_tree

MOST_WAITING = 1 / 8
"""Share of a same-step vector's rows that may go to waiting for a few truncated environments."""


def adapt(env: gym.vector.VectorEnv, info: tuple[str, ...] = ()) -> VectorEnv:
    """Return the `VectorEnv` for the autoreset mode that the vector environment declares."""
    mode = env.metadata.get("autoreset_mode")
    if mode == AutoresetMode.NEXT_STEP:
        return NextStepVector(env, info)
    if mode == AutoresetMode.SAME_STEP:
        return SameStepVector(env, info)
    raise UserError(
        f"env.id: metadata['autoreset_mode'] of {type(env).__name__} is {mode}; expected AutoresetMode.NEXT_STEP or "
        "AutoresetMode.SAME_STEP"
    )


class GymnasiumVector:
    """What both modes share: translation of the spaces, and the returns and lengths of episodes."""

    def __init__(self, env: gym.vector.VectorEnv, info: tuple[str, ...] = ()) -> None:
        observation, action, self.encode, self.decode = translation(
            env.single_observation_space, env.single_action_space
        )
        self.spec = EnvSpec(observation, action, frames_per_step(env), info=info)
        self.count = env.num_envs
        self.task = np.zeros(self.count, np.int32)
        self._env = env
        self._return = np.zeros(self.count, np.float64)
        self._length = np.zeros(self.count, np.int32)

    def reset(self, seeds: list[int]) -> Step:
        """Open new episodes. A native vector environment has one random stream and takes the first seed."""
        has_own_streams = isinstance(self._env.unwrapped, gym.vector.SyncVectorEnv | gym.vector.AsyncVectorEnv)
        return self._reset(seeds if has_own_streams else seeds[0])

    def _reset(self, seed: Any) -> Step:
        observation, _ = self._env.reset(seed=seed)
        self._return[:] = 0.0
        self._length[:] = 0
        never, nothing = np.zeros(self.count, bool), np.zeros(self.count)
        return self._answer(self._encoded(observation), ~never, nothing, ~never, never, ended=never)

    def close(self) -> None:
        """Close the environments."""
        self._env.close()

    def _encoded(self, observation: Any) -> Tree:
        encoded = self.encode(observation)
        check_shapes(encoded, self.spec.observation, "the vector environment", self.count)
        return encoded

    def _answer(
        self,
        observation: Tree,
        first: Array,
        reward: Array,
        discount: Array,
        valid: Array,
        ended: Array,
        info: dict[str, Any] | None = None,
    ) -> Step:
        episode_return, episode_length = np.full(self.count, np.nan, np.float32), np.zeros(self.count, np.int32)
        if ended.any():
            episode_return[ended], episode_length[ended] = self._return[ended], self._length[ended]
            self._return[ended], self._length[ended] = 0.0, 0
        numbers = {name: numbers_of(info or {}, name, self.count) for name in self.spec.info}
        return Step(observation, first, reward, discount, valid, episode_return, episode_length, numbers)


class NextStepVector(GymnasiumVector):
    """Environments that reset in the step after their last: they show their true last observations themselves."""

    def _reset(self, seed: Any) -> Step:
        self._ended = np.zeros(self.count, bool)
        return super()._reset(seed)

    def step(self, action: Array) -> Step:
        """Play one action in each environment."""
        observation, reward, terminated, truncated, info = self._env.step(self.decode(action))
        over = self._over(terminated, truncated, info)
        valid = ~self._ended
        first = self._ended | (terminated & ~over)
        self._ended = over
        self._length += valid
        self._return += np.where(valid, reward, 0.0)
        return self._answer(self._encoded(observation), first, reward, ~terminated, valid, over, info)

    def _over(self, terminated: Array, truncated: Array, info: dict[str, Array]) -> Array:
        """Return where the episode that is reported, and reset, is over. Learning may see more ends (Atari's lives)."""
        return terminated | truncated


class SameStepVector(GymnasiumVector):
    """Environments that reset in the very step that ends an episode.

    A truncated step must be followed by its true last observation, and then by a row that opens the next episode. But a
    vector cannot hold back one environment while it steps the others. So the whole vector waits for one row:

        row         truncated environment          other environments
        t + 1       the true last observation      o                        valid, as usual
        t + 2       opens the next episode         o once more              not valid, no environment is stepped

    In a large vector whose environments are truncated at different times, this would waste every second row. Therefore
    it waits only if at least half of the environments were truncated, or else in a random choice of cases, so that at
    most `MOST_WAITING` of the rows are spent. In the other cases the truncated step is not valid. The choice does not
    depend on what happened in the episode, so what is learnt stays unbiased.
    """

    def _reset(self, seed: Any) -> Step:
        self._random = np.random.default_rng(seed)
        self._rows = self._rows_with_truncation = 0
        self._waiting: tuple[Tree, Array] | None = None  # observation and `first` of the row that comes next
        return super()._reset(seed)

    def step(self, action: Array) -> Step:
        """Play one action in each environment, or show the row that was held back."""
        if self._waiting is not None:
            observation, first = self._waiting
            self._waiting = None
            never, nothing = np.zeros(self.count, bool), np.zeros(self.count)
            return self._answer(observation, first, nothing, ~never, never, ended=never)
        observation, reward, terminated, truncated, info = self._env.step(self.decode(action))
        encoded = self._encoded(observation)
        ended = terminated | truncated
        first, valid = ended, np.ones(self.count, bool)
        self._length += 1
        self._return += reward
        self._rows += 1
        if truncated.any() and (cut := truncated & ~terminated).any():
            self._rows_with_truncation += 1
            if self._waits(cut):
                self._waiting = encoded, ended
                encoded, first = self._with_last(encoded, cut, info), terminated
            else:
                valid = ~cut
        return self._answer(encoded, first, reward, ~terminated, valid, ended, info)

    def _waits(self, cut: Array) -> bool:
        if 2 * np.count_nonzero(cut) >= self.count:
            return True
        # With this probability per row with a truncation, a share of at most MOST_WAITING of all rows is waited for.
        return self._random.random() * self._rows_with_truncation < MOST_WAITING * self._rows

    def _with_last(self, encoded: Tree, cut: Array, info: dict[str, Any]) -> Tree:
        """Return the observations with the true last ones where an environment was truncated."""
        if "final_obs" not in info:
            raise ValueError(
                f"{type(self._env.unwrapped).__name__} resets in the same step but gives no info['final_obs'] for a "
                "truncated episode; add it, or reset in the next step (AutoresetMode.NEXT_STEP)"
            )
        shown = map_tree(np.copy, encoded)
        for index in np.flatnonzero(cut).tolist():
            last = self.encode(_at(info["final_obs"], index))
            check_shapes(last, self.spec.observation, f"info['final_obs'] of environment {index}")
            assign(shown, index, last)
        return shown


def _at(observations: Any, index: int) -> Any:
    """Return one environment's observation: of an array of observations, or of a tree of batched arrays."""
    if isinstance(observations, dict):
        return {key: _at(part, index) for key, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(_at(part, index) for part in observations)
    return observations[index]


def numbers_of(info: dict[str, Any], name: str, count: int) -> Array:
    """Return one number of a vector's info: [N], NaN where an environment gave none.

    Gymnasium marks in `_NAME` whose number it is. Vectors that reset in the same step put the last info of an episode
    into `final_info`.
    """
    numbers = np.full(count, np.nan, np.float32)
    for source in (info, info.get("final_info", {})):
        if isinstance(source, dict) and name in source:
            given = np.broadcast_to(np.asarray(source.get(f"_{name}", True), bool), count)
            values = np.asarray([number_of(value) for value in np.broadcast_to(source[name], count)], np.float32)
            numbers[given] = values[given]
    return numbers
