"""Any Gymnasium vector environment as a `VectorEnv`.

The only place that knows how environments reset themselves. Gymnasium has two ways, and one rule serves both: a step
whose successor is not its own is not valid.

    next-step   o_0 a_0 | o_1 (the true last one) | o_2 (first of the next episode)
                step 0 is valid and bootstraps from o_1 if it was truncated; step 1, which only resets, is not valid
    same-step   o_0 a_0 | o_1 (first of the next episode)
                step 0 is valid if it terminated (its discount is 0, so o_1 does not matter), not if truncated
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from pronk.config import EnvConfig
from pronk.config.errors import nearest
from pronk.config.named import import_module
from pronk.envs.spaces import action_decoder, check_action_mask, observation_encoder, refuse_nothing
from pronk.processes.lifeline import die_with_parent
from pronk.types import Array, EnvSpec, Step, Tree, UserError, leaves


class GymnasiumVector:
    """A `VectorEnv` over a `gymnasium.vector.VectorEnv` of either autoreset mode."""

    def __init__(self, env: gym.vector.VectorEnv) -> None:
        mode = env.metadata.get("autoreset_mode")
        if mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
            raise UserError(f"{env}: metadata['autoreset_mode'] is {mode}; it must be NEXT_STEP or SAME_STEP")
        self._env, self._next_step = env, mode == AutoresetMode.NEXT_STEP
        observation, self.encode = observation_encoder(env.single_observation_space)
        action, self.decode = action_decoder(env.single_action_space)
        refuse_nothing(observation)
        check_action_mask(observation, action)
        self.spec = EnvSpec(observation, action)
        self.count = env.num_envs
        self.task = np.zeros(self.count, np.int32)
        self._ended = np.zeros(self.count, bool)
        self._return = np.zeros(self.count, np.float64)
        self._length = np.zeros(self.count, np.int32)

    def reset(self, seeds: list[int]) -> Step:
        """Begin new episodes. A native vector environment has one random stream and takes the first seed."""
        has_own_streams = isinstance(self._env.unwrapped, gym.vector.SyncVectorEnv | gym.vector.AsyncVectorEnv)
        return self._begin(seeds if has_own_streams else seeds[0])

    def _begin(self, seed: Any) -> Step:
        with self._shapes_explained():
            observation, _ = self._env.reset(seed=seed)
        self._ended = np.zeros(self.count, bool)
        self._return[:] = 0.0
        self._length[:] = 0
        never = np.zeros(self.count, bool)
        return self._answer(observation, ~never, never, np.zeros(self.count), ~never, ~never)

    def step(self, action: Array) -> Step:
        """Play; see the module's docstring for `valid`."""
        with self._shapes_explained():
            observation, reward, terminated, truncated, info = self._env.step(self.decode(action))
        over = self._over(terminated, truncated, info)
        if self._next_step:
            valid = ~self._ended
            first = self._ended | (terminated & ~over)
            self._ended = over
            self._length += valid
            self._return += np.where(valid, reward, 0.0)
        else:
            first, valid = over | terminated, terminated | ~truncated
            self._length += 1
            self._return += reward
        return self._answer(observation, first, over, reward, ~terminated, valid)

    def close(self) -> None:
        """End the environments."""
        self._env.close()

    def _over(self, terminated: Array, truncated: Array, info: dict[str, Array]) -> Array:
        """Where the episode that is reported, and reset, is over. Learning may see more ends than that (Atari)."""
        return terminated | truncated

    @contextlib.contextmanager
    def _shapes_explained(self) -> Iterator[None]:
        """Gymnasium's vectors stumble over a wrong shape without naming it."""
        try:
            yield
        except ValueError:
            space = self._env.single_observation_space
            for index, observation in enumerate(getattr(self._env, "_env_obs", [])):
                if observation is not None and space.shape and np.shape(observation) != space.shape:
                    raise ValueError(
                        f"environment {index} returned an observation of shape {np.shape(observation)}, "
                        f"but its observation space says {space.shape}"
                    ) from None
            raise

    def _answer(
        self, observation: Any, first: Array, ended: Array, reward: Array, discount: Array, valid: Array
    ) -> Step:
        encoded = self.encode(observation)
        check_shapes(encoded, self.spec.observation, self.count)
        episode_return, episode_length = np.full(self.count, np.nan, np.float32), np.zeros(self.count, np.int32)
        if ended.any():
            episode_return[ended], episode_length[ended] = self._return[ended], self._length[ended]
            self._return[ended], self._length[ended] = 0.0, 0
        return Step(encoded, first, reward, discount, valid, episode_return, episode_length)


def check_shapes(observation: Tree, spec: Tree, count: int) -> None:
    """Every array as the space promised: a wrong one would be broadcast silently into the unroll."""
    for (path, array), (_, wanted) in zip(leaves(observation), leaves(spec), strict=True):
        if array.shape != (count, *wanted.shape):
            raise ValueError(
                f"the environment returned observation {path or 'array'} of shape {array.shape[1:]}, "
                f"but its observation space says {wanted.shape}"
            )


def make(config: EnvConfig, count: int) -> GymnasiumVector:
    """A Gymnasium id, `module:Id`, or `module:attribute` that makes an environment."""
    factory = user_factory(config.id)
    if factory is not None:
        return GymnasiumVector(vector_of(factory, config, count))
    spec = registered(config.id)
    mode = config.vectorization
    # ale-py's vector class clips rewards and scales frames, which its single game does not: another environment.
    # `env.id=atari` is the way to it.
    native = spec.vector_entry_point is not None and not config.id.startswith("ALE/")
    if mode == "native" and not native:
        raise UserError(f"env.vectorization=native: {config.id} has no vector class of its own; use sync or async")
    if mode in ("auto", "native") and native:
        return GymnasiumVector(gym.make_vec(config.id, count, "vector_entry_point", **config.kwargs))
    return GymnasiumVector(vector_of(lambda **kwargs: gym.make(config.id, **kwargs), config, count))


def vector_of(factory: Callable[..., Any], config: EnvConfig, count: int) -> gym.vector.VectorEnv:
    """N environments of a factory. Same-step resets where we choose, because they waste no step."""
    if isinstance(factory, type) and issubclass(factory, gym.vector.VectorEnv):
        make_all: Callable[..., gym.vector.VectorEnv] = factory
        return make_all(num_envs=count, **config.kwargs)

    if config.vectorization == "native":
        raise UserError(f"env.vectorization=native: {config.id} is not a VectorEnv class; use sync or async")

    actor = os.getpid()

    def make_one() -> Any:
        if os.getpid() != actor:
            die_with_parent(actor)
        return factory(**config.kwargs)

    if config.vectorization == "async":
        # Forked, here only: the actor has one thread, and the locks of forked processes have no names to leave behind.
        return gym.vector.AsyncVectorEnv([make_one] * count, context="fork", autoreset_mode=AutoresetMode.SAME_STEP)
    return gym.vector.SyncVectorEnv([make_one] * count, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)


def user_factory(name: str) -> Callable[..., Any] | None:
    """The attribute of `module:attribute`, or None where the part after the colon is an id that module registers."""
    module_name, colon, attribute = name.partition(":")
    if not colon:
        return None
    module = import_module(module_name, name)
    if hasattr(module, attribute):
        return getattr(module, attribute)
    if attribute not in gym.registry:
        raise UserError(
            f"env.id: {module_name} neither has nor registers {attribute!r}{nearest(attribute, dir(module))}"
        )
    return None


# Which module knows the ids with such a beginning.
KNOWN_BY = {"ALE/": "ale_py", "MinAtar/": "minatar.gym", "MiniGrid-": "minigrid", "BabyAI-": "minigrid"}


def registered(name: str) -> Any:
    """The registration of a Gymnasium id."""
    for beginning, module in KNOWN_BY.items():
        if name.startswith(beginning) and name not in gym.registry:
            getattr(import_module(module, name), "register_envs", lambda: None)()  # most register when imported
    bare = name.rpartition(":")[2]  # its module was imported by `user_factory`
    try:
        return gym.spec(bare)
    except gym.error.Error:
        raise UserError(
            f"env.id: Gymnasium knows no environment {name!r}{nearest(bare, gym.registry)}; "
            "one that a module of yours registers is named module:Id"
        ) from None
