"""What every vector of environments looks like to the rest of Pronk, and the table of implementations.

A family of environments that Gymnasium cannot make (EnvPool's ids, PettingZoo's parallel environments) is one file here
with a `make(EnvConfig, count) -> VectorEnv`, one line in `TABLE`, and one line in the contract test.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from pronk.config import Config, EnvConfig, ResolvedConfig
from pronk.config.named import load
from pronk.types import Array, EnvSpec, Step, Tree, UserError


class VectorEnv(Protocol):
    """N environments stepped together. They reset themselves; `Step` says where."""

    spec: EnvSpec
    count: int  # at least as many as asked for: a team of several agents is never cut
    task: Array  # [N] int32: index into `spec.tasks`; an environment plays one task throughout

    def reset(self, seeds: list[int]) -> Step:
        """Open a new episode in every environment. Of the answer, only `observation` and `first` are meaningful.

        Seeds have 31 bits, one for each environment.
        """
        ...

    def step(self, action: Array) -> Step:
        """Play one action in each environment. The arrays of the answer may be reused by the next call."""
        ...

    def encode(self, observation: Any) -> Tree:
        """Return batched observations of the environment as arrays, as `step` does."""
        ...

    def decode(self, action: Array) -> Any:
        """Return batched actions of the agent in the environment's units, as `step` does."""
        ...

    def close(self) -> None:
        """Close the environments."""
        ...


# How environments of a kind are made: a function (EnvConfig, count) -> VectorEnv. All other ids are Gymnasium's.
TABLE = {
    "catch": "pronk.envs.catch:make",
    "atari": "pronk.envs.atari:make",
}
# Kinds whose ids begin with the kind's name: `envpool:Ant-v4`.
PREFIXED = {
    "envpool:": "pronk.envs.envpool_ids:make",
    "pettingzoo:": "pronk.envs.pettingzoo_parallel:make",
}
GYMNASIUM = "pronk.envs.gymnasium_ids:make"

# Of actors.timeout_seconds: an environment's process that hangs is reported before its actor counts as hanging.
TIMEOUT_SHARE = 0.8


def make_env(config: Config | ResolvedConfig, count: int) -> VectorEnv:
    """Make the configured environments, with the extra inputs that the configured network asks for."""
    settings = played_as(config.env)
    name = settings.id
    own = maker_of_kind(name)
    make: Callable[..., VectorEnv] = load(own or GYMNASIUM)
    if own:
        env = make(settings, count)
        if name != config.env.id:
            from pronk.envs.ale_ids import describe_change

            env.spec = dataclasses.replace(env.spec, notes=(describe_change(config.env, settings),))
    else:
        env = make(settings, count, TIMEOUT_SHARE * config.actors.timeout_seconds)
    return with_extra_inputs(env, config)


def maker_of_kind(name: str) -> str | None:
    """Return the address of what makes an id that is not Gymnasium's."""
    prefixed = [address for prefix, address in PREFIXED.items() if name.startswith(prefix)]
    return TABLE.get(name) or next(iter(prefixed), None)


def played_as(config: EnvConfig) -> EnvConfig:
    """Return the settings that make the environment: those of a built-in kind, if that plays the configured id."""
    if config.id.startswith("ALE/"):
        from pronk.envs.ale_ids import as_atari

        config = as_atari(config)
    if config.id in TABLE:
        from pronk.envs.wrappers import refuse_wrappers

        refuse_wrappers(config, "its observations have settings of their own: see `pronk show`, section env")
    return config


def with_extra_inputs(env: VectorEnv, config: Config | ResolvedConfig) -> VectorEnv:
    """Add the last action and the last reward to the observations, where the network asks for them."""
    if config.network.last_action or config.network.last_reward:
        from pronk.envs.last_inputs import LastInputs

        env = LastInputs(env, action=config.network.last_action, reward=config.network.last_reward)
    return env


def probe_spec(config: Config | ResolvedConfig) -> EnvSpec:
    """Return the spec of the configured environment. One is made, tried and closed again.

    It is also stepped once, so that an environment of the old gym API is refused before the run starts. All else that
    an environment may raise is left to the actors, which report it and may try again.
    """
    if config.env.vectorization == "async":
        config = config.replace({"env.vectorization": "sync"})  # one environment needs no process of its own
    env = make_env(config, 1)
    try:
        if not maker_of_kind(config.env.id):
            try_once(env)
        return env.spec
    finally:
        env.close()


def try_once(env: VectorEnv) -> None:
    """Reset one environment and play one action; raise only what is a mistake of the user, or a time-out."""
    action = env.spec.action.array
    try:
        env.reset([0])
        env.step(np.zeros((1, *action.shape), action.dtype))
    except (UserError, TimeoutError):
        raise
    except Exception:
        return
