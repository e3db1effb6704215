"""What every vector of environments looks like to the rest of Pronk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from pronk.config import Config, ResolvedConfig
from pronk.config.named import find
from pronk.types import Array, EnvSpec, Step, Tree


class VectorEnv(Protocol):
    """N environments stepped together. They reset themselves; `Step` tells where."""

    spec: EnvSpec
    count: int
    task: Array  # [N] int32: index into `spec.tasks`; an environment plays one task throughout

    def reset(self, seeds: list[int]) -> Step:
        """Start every environment anew. Only `observation` and `first` of the answer mean something."""
        ...

    def step(self, action: Array) -> Step:
        """Play one action in each environment. The arrays of the answer may be reused by the next call."""
        ...

    def encode(self, observation: Any) -> Tree:
        """The environment's own batched observations as arrays: what `step` does to them."""
        ...

    def decode(self, action: Array) -> Any:
        """The agent's actions as the environment's own."""
        ...

    def close(self) -> None:
        """End them."""
        ...


# How environments of a kind are made: a function (EnvConfig, count) -> VectorEnv. Any other id is Gymnasium's to find.
TABLE = {
    "catch": "pronk.envs.catch:make",
    "atari": "pronk.envs.atari:make",
}
GYMNASIUM = "pronk.envs.gymnasium_vector:make"


def make_env(config: Config | ResolvedConfig, count: int) -> VectorEnv:
    """The configured environments, with the extra inputs that the configured network asks for."""
    name = config.env.id
    make: Callable[[Any, int], VectorEnv] = find("environment", name if name in TABLE else GYMNASIUM, TABLE)
    return with_extra_inputs(make(config.env, count), config)


def with_extra_inputs(env: VectorEnv, config: Config | ResolvedConfig) -> VectorEnv:
    """The environment, also telling its last action or reward where the network wants to see them."""
    if config.network.last_action or config.network.last_reward:
        from pronk.envs.last_inputs import LastInputs

        env = LastInputs(env, action=config.network.last_action, reward=config.network.last_reward)
    return env


def probe_spec(config: Config | ResolvedConfig) -> EnvSpec:
    """The spec of the configured environment, from a single one that is made and closed again."""
    if config.env.vectorization == "async":
        config = config.replace({"env.vectorization": "sync"})  # one environment needs no process of its own
    env = make_env(config, 1)
    try:
        return env.spec
    finally:
        env.close()
