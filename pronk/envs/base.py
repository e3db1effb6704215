"""The interface of a vector of environments to the rest of Pronk, and the table of implementations.

A family of environments that Gymnasium cannot make (EnvPool's ids, PettingZoo's parallel environments) is one file here
with a `make(EnvConfig, count) -> VectorEnv`, one line in `TABLE`, and one line in the contract test.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from pronk.config import Config, EnvConfig, ResolvedConfig
from pronk.config.named import load
from pronk.types import Array, EnvSpec, Step, Tree, UserError

SLOW_STEP, SLOW_RESET = 1e-3, 0.1  # seconds: a faster environment gets the usual settings
TRIED = 3  # times, if it is slow: the first may include loading something, and the machine may be busy
ENOUGH_SECONDS = 1.0  # a call that takes longer is not repeated


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

# Share of actors.timeout_seconds: an environment's process that hangs is reported before its actor counts as hanging.
TIMEOUT_SHARE = 0.8


def make_env(config: Config | ResolvedConfig, count: int, first: int = 0, task: str | None = None) -> VectorEnv:
    """Make the configured environments, with the extra inputs that the configured network asks for.

    Args:
        config: of the run.
        count: of environments.
        first: with `env.tasks`, the number of the first of them in the run: tasks are assigned by these numbers.
        task: with `env.tasks`, all environments play this one.
    """
    timeout = TIMEOUT_SHARE * config.actors.timeout_seconds
    if config.env.tasks:
        from pronk.envs.tasks import make_tasks

        env: VectorEnv = make_tasks(config.env, count, timeout, first, task)
    else:
        refuse_task(task)
        env = make_vector(config.env, count, timeout)
    return with_extra_inputs(env, config)


def refuse_task(task: str | None) -> None:
    """Raise `UserError` if a task was asked for where there are none."""
    if task is not None:
        raise UserError(f"task {task!r}: the run has one task, env.id; env.tasks names several")


def make_vector(config: EnvConfig, count: int, timeout: float) -> VectorEnv:
    """Make environments of one task. `timeout`: seconds for a reply of an environment that is a process of its own."""
    settings = played_as(config)
    own = maker_of_kind(settings.id)
    make: Callable[..., VectorEnv] = load(own or GYMNASIUM)
    if own is None:
        return make(settings, count, timeout)
    if settings.info:
        raise UserError(f"env.info: {config.id} gives no info; only Gymnasium's environments and your own do")
    env = make(settings, count)
    if settings.id != config.id:
        from pronk.envs.ale_ids import describe_change

        env.spec = dataclasses.replace(env.spec, notes=(describe_change(config, settings),))
    return env


def maker_of_kind(name: str) -> str | None:
    """Return the `module:function` that makes environments of this id; None for Gymnasium's ids."""
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


def games_of(config: EnvConfig) -> list[str | None]:
    """Return the Atari game of each task; None for tasks that are none."""
    played = [played_as(task) for task in config.each_task]
    return [task.game if task.id == "atari" else None for task in played]


def with_extra_inputs(env: VectorEnv, config: Config | ResolvedConfig) -> VectorEnv:
    """Add the last action and the last reward to the observations, where the network asks for them."""
    if config.network.last_action or config.network.last_reward:
        from pronk.envs.last_inputs import LastInputs

        env = LastInputs(env, action=config.network.last_action, reward=config.network.last_reward)
    return env


def probe_spec(config: Config | ResolvedConfig) -> EnvSpec:
    """Return the spec of the configured environment. One is made, of each task, tried and closed again."""
    env = probed_env(config)
    env.close()
    return env.spec


def probed_env(config: Config | ResolvedConfig) -> VectorEnv:
    """Make one environment of each task, reset it and step it once; where that is slow, a few times.

    This refuses environments of the old gym API before the run starts. Any other error in reset or step is left to the
    actors, which report it and may try again.
    """
    if config.env.vectorization == "async":
        config = config.replace({"env.vectorization": "sync"})  # one environment needs no process of its own
    tasks = config.env.each_task
    env = make_env(config, len(tasks))
    try:
        if any(not maker_of_kind(task.id) for task in tasks):
            env.spec = tried(env)
    except BaseException:
        env.close()
        raise
    return env


def tried(env: VectorEnv) -> EnvSpec:
    """Reset the environments and play one action, and again where that is slow. Returns the spec with the seconds.

    Raises only a mistake of the user, or a timeout. After any other exception the seconds stay unknown.
    """
    action = env.spec.action.array
    played = np.zeros((env.count, *action.shape), action.dtype)
    try:
        reset = least_seconds(lambda: env.reset([0] * env.count), SLOW_RESET)
        step = least_seconds(lambda: env.step(played), SLOW_STEP)
    except (UserError, TimeoutError):
        raise
    except Exception:
        return env.spec
    return dataclasses.replace(env.spec, reset_seconds=reset / env.count, step_seconds=step / env.count)


def least_seconds(call: Callable[[], object], slow: float) -> float:
    """Return the seconds that a call takes, the least of a few; 0 if that is less than `slow`."""
    least = math.inf
    for _ in range(TRIED):
        started = time.monotonic()
        call()
        least = min(least, time.monotonic() - started)
        if least < slow:
            return 0.0
        if least > ENOUGH_SECONDS:  # the caller limits the time of all tries together
            break
    return least
