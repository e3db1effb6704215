"""How fast this machine trains a configuration, against its own limit.

Each part is first measured alone on one core: stepping environments, choosing actions, learning from a batch. A step
needs all three, so the best that the machine could do is limit = cores / (1/env + 1/inference + 1/learner).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pronk.actor import Actor, specs_for
from pronk.batcher import Batcher
from pronk.config import Config, ResolvedConfig, available_cores, decided, resolve
from pronk.device import choose_device
from pronk.envs import make_env, probe_spec
from pronk.layout import UnrollLayout
from pronk.learner import Learner
from pronk.networks import make_network
from pronk.policies.local import LocalPolicy
from pronk.processes.failures import user_code
from pronk.processes.freed_memory import keep_freed_memory
from pronk.processes.interrupts import Interrupted
from pronk.starting import TrainingInterrupted, train
from pronk.training import Say
from pronk.transport.local import LocalTransport
from pronk.types import map_tree

WARM_UP_SECONDS = 3.0  # of all parts together, not counted in their rate


def measure(config: Config, seconds: float, say: Say) -> dict[str, Any]:
    """Return the rates in steps/s, `efficiency` (trained / limit) and `cores`."""
    with user_code("the environment"):
        alone = measure_alone(resolve(decided(config, probe_spec(config))), seconds / 5)
    limit = available_cores() / sum(1 / rate for rate in alone.values())
    trained = measure_together(config, seconds, say)
    return {**alone, "limit": limit, "trained": trained, "efficiency": trained / limit, "cores": available_cores()}


def measure_alone(config: ResolvedConfig, seconds: float) -> dict[str, float]:
    """Return the rate of each part on one core, on data as in training."""
    torch.set_num_threads(1)
    keep_freed_memory()
    count, length = config.actors.envs, config.actors.unroll_length
    env = make_env(config, count)
    try:
        learner = Learner(config, env.spec, choose_device(config.learner.device))
        policy = LocalPolicy(make_network(env.spec, config.network), count, seed=1)
        specs = specs_for(config, env.spec, learner.network.state_spec)
        port = LocalTransport(UnrollLayout(specs))
        port.publish(learner.parameters())
        actor = Actor(env, policy, port, list(range(count)))
        port.while_waiting = actor.advance
        batch = Batcher(port, specs, config.learner.batch_size, torch.device("cpu")).next()
        seen = env.reset(list(range(count)))
        observation = map_tree(np.array, seen.observation)
        action, _ = policy.act(observation, seen.first)

        def step() -> None:
            nonlocal action
            now = env.step(action)
            if env.spec.has_action_mask:
                action, _ = policy.act(now.observation, now.first)  # the mask changes; nothing else needs a new action

        return {
            "env": rate(step, count, seconds),
            "inference": rate(lambda: policy.act(observation, seen.first), count, seconds),
            "learner": rate(
                lambda: learner.step(batch.tensors, 1e-9, lambda: None), length * config.learner.batch_size, seconds
            ),
        }
    finally:
        env.close()


def rate(call: Callable[[], object], steps: int, seconds: float) -> float:
    """Return steps per second of a call that makes `steps` steps."""
    call()
    began, calls = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        call()
        calls += 1
    return calls * steps / (time.perf_counter() - began)


def measure_together(config: Config, seconds: float, say: Say) -> float:
    """Return trained steps per second of all parts together. The time of the start does not count."""
    watch = Stopwatch(seconds)
    with tempfile.TemporaryDirectory() as folder:
        changes = {
            "run.stop_return": None,
            "run.total_steps": 10**12,
            "run.total_seconds": None,
            "run.log_every_seconds": 0.5,
        }
        try:
            train(config.replace(changes), run_dir=Path(folder) / "run", display=watch, say=say)
        except TrainingInterrupted:
            if watch.rate is None:  # it was the user's Ctrl-C
                raise
    assert watch.rate is not None, "training ends only with the measurement"
    return watch.rate


class Stopwatch:
    """A sink that measures the rate between two lines of metrics, and then ends the training."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._warm_at: float | None = None
        self._first: dict[str, Any] | None = None
        self.rate: float | None = None

    def __enter__(self) -> Stopwatch:
        return self

    def __exit__(self, *_: object) -> None: ...

    def write(self, line: dict[str, Any]) -> None:
        """Take the time. The warm-up begins with the first line, so after the first update."""
        now = line["wall_seconds"]
        if self._warm_at is None:
            self._warm_at = now + WARM_UP_SECONDS
        if self._first is None:
            self._first = line if now >= self._warm_at else None
        elif self.rate is None and now >= self._first["wall_seconds"] + self._seconds:
            self.rate = (line["env_steps"] - self._first["env_steps"]) / (now - self._first["wall_seconds"])
            raise Interrupted
