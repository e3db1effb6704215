"""Environments by `env.id`: a Gymnasium id, `module:Id`, or `module:attribute` of the user's.

Single environments are stepped by Pronk (`sync_vector.py`, `async_vector.py`), vector classes by themselves
(`gymnasium_vector.py`). `wrappers.py` has what is done to every single environment before it is stepped.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec as Registration
from gymnasium.envs.registration import load_env_creator

from pronk.config import EnvConfig
from pronk.config.errors import nearest
from pronk.config.named import import_module
from pronk.envs.async_vector import AsyncVector
from pronk.envs.base import VectorEnv
from pronk.envs.gymnasium_vector import adapt
from pronk.envs.mistakes import check_single, mistakes_explained
from pronk.envs.sync_vector import SyncVector
from pronk.envs.wrappers import asked_for, refuse_wrappers, wrapped
from pronk.processes import session
from pronk.types import UserError

# The package that registers the ids with such a beginning when it is imported.
REGISTERED_BY = {
    "ALE/": "ale_py",
    "BabyAI-": "minigrid",
    "Crafter": "pronk.envs.crafter",
    "dm_control/": "shimmy",
    "MinAtar/": "minatar.gym",
    "MiniGrid-": "minigrid",
    "MiniHack-": "minihack",
    "NetHack": "nle",
    "popgym-": "popgym",
    "Vizdoom": "vizdoom.gymnasium_wrapper",
}

Creator = Callable[..., Any]


def make(config: EnvConfig, count: int, timeout: float = 100.0) -> VectorEnv:
    """Make N environments, stepped as `env.vectorization` says. `timeout`: as for `envs.base.make_vector`."""
    creator = vector_creator(config)
    if config.vectorization == "native" and creator is None:
        raise UserError(f"env.vectorization=native: {config.id} has no vector class of its own; use sync or async")
    if creator is not None:
        refuse_wrappers(config, "its vector class steps many at once; use env.vectorization=sync if it has single ones")
        return adapt(make_vector(config, creator, count), tuple(config.info))
    make_one, info = maker_of(config), tuple(config.info)
    if config.vectorization == "async":
        return AsyncVector(make_one, count, timeout, info)
    return SyncVector(make_one, count, info)


def vector_creator(config: EnvConfig) -> Creator | None:
    """Return what makes a native vector environment with `num_envs`, if there is one and it was asked for."""
    creator = user_creator(config)
    if creator is not None:
        return creator if isinstance(creator, type) and issubclass(creator, gym.vector.VectorEnv) else None
    registration = registered(config)
    # ale-py's vector class clips rewards and scales frames, which its single game does not: it is another environment,
    # and `env.id=atari` makes it.
    if registration.vector_entry_point is None or registration.id.startswith("ALE/"):
        return None
    wanted = config.vectorization == "native" or (config.vectorization == "auto" and not asked_for(config))
    if wanted or registration.entry_point is None:
        return lambda **kwargs: gym.make_vec(registration, vectorization_mode="vector_entry_point", **kwargs)
    return None


def make_vector(config: EnvConfig, creator: Creator, count: int, **kwargs: Any) -> gym.vector.VectorEnv:
    """Make a native vector environment with `env.kwargs` and further arguments."""
    with mistakes_explained(config, lambda: creator_of(config)):
        return creator(num_envs=count, **config.kwargs, **kwargs)


def maker_of(config: EnvConfig, creator: Creator | None = None) -> Callable[[], gym.Env]:
    """Return a function that makes one environment; `creator` may stand in for the configured one."""
    creator = creator or single_creator(config)

    def make_one() -> gym.Env:
        with mistakes_explained(config, lambda: creator_of(config)):
            env = creator(**config.kwargs)
        check_single(env, config)
        return wrapped(env, config)

    return make_one


def single_creator(config: EnvConfig) -> Creator:
    """Return what makes one environment."""
    creator = user_creator(config)
    if creator is not None:
        return creator
    registration = registered(config)
    return lambda **kwargs: gym.make(registration, **kwargs)


def creator_of(config: EnvConfig) -> Creator:
    """Return the class or function that gets `env.kwargs`, for its signature."""
    creator = user_creator(config)
    if creator is not None:
        return creator
    registration = registered(config)
    entry_point = registration.vector_entry_point if vector_creator(config) else registration.entry_point
    return entry_point if callable(entry_point) else load_env_creator(str(entry_point))


def user_creator(config: EnvConfig) -> Creator | None:
    """Return the attribute of `module:attribute`, or None where the part after the colon is a registered id."""
    module_name, colon, attribute = config.id.partition(":")
    if not colon:
        return None
    if config.id.startswith(session.PREFIX):
        return session.find(config.id)
    with mistakes_explained(config):
        module = import_module(module_name, config.id)
    if not hasattr(module, attribute):
        if attribute in gym.registry:
            return None
        raise UserError(
            f"env.id: {module_name} neither has nor registers {attribute!r}{nearest(attribute, dir(module))}"
        )
    creator = getattr(module, attribute)
    if not callable(creator):
        raise UserError(f"env.id: {config.id} is {creator!r}; expected a class or function that makes an environment")
    return creator


def registered(config: EnvConfig) -> Registration:
    """Return the registration of a Gymnasium id."""
    name = config.id.rpartition(":")[2]  # the module before the colon was imported by `user_creator`
    for beginning, package in REGISTERED_BY.items():
        if name.startswith(beginning) and name not in gym.registry:
            with mistakes_explained(config):
                module = importlib.import_module(package)
            getattr(module, "register_envs", lambda: None)()  # most register when they are imported
    if name.startswith("ALE/"):
        from pronk.envs.ale_ids import silence_banner

        silence_banner()
    try:
        return gym.spec(name)
    except gym.error.Error:
        raise UserError(
            f"env.id: Gymnasium knows no environment {config.id!r}{nearest(name, gym.registry)}; "
            "an id that a module of yours registers is written module:Id"
        ) from None
