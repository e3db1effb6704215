"""The parts of training, each by itself: stepping environments, choosing actions, learning from a batch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pronk.actor import Actor, specs_for
from pronk.batcher import Batcher
from pronk.bench.timing import calls_per_second
from pronk.config import ResolvedConfig
from pronk.device import choose_device
from pronk.envs import make_env
from pronk.layout import UnrollLayout
from pronk.learner import Learner
from pronk.policies.local import LocalInference
from pronk.transport.local import LocalTransport
from pronk.types import map_tree

NAMES = ("env", "inference", "learner")


class Parts:
    """One actor and one learner with data as in training. Each part can be called by itself."""

    def __init__(self, config: ResolvedConfig) -> None:
        count, rows = config.actors.envs, config.actors.unroll_length * config.learner.batch_size
        self._env = make_env(config, count)
        spec = self._env.spec
        self._learner = Learner(config, spec, choose_device(config.learner.device))
        self._policy = LocalInference.policy(config, spec, 1, {})
        specs = specs_for(config, spec, self._learner.network.state_spec)
        port = LocalTransport(UnrollLayout(specs))
        port.publish(self._learner.parameters())
        port.while_waiting = Actor(self._env, self._policy, port, list(range(count))).advance
        self._batch = Batcher(port, specs, config.learner.batch_size, self._learner.device).next()
        seen = self._env.reset(list(range(count)))
        self._observation, self._first = map_tree(np.array, seen.observation), seen.first
        self._action, _ = self._policy.act(self._observation, self._first)
        self._calls: dict[str, tuple[Callable[[], object], int]] = {
            "env": (self._step, count),
            "inference": (lambda: self._policy.act(self._observation, self._first), count),
            "learner": (lambda: self._learner.step(self._batch.tensors, 1e-9), rows),
        }
        for call, _ in self._calls.values():
            call()  # warm-up: what is only done once must not be measured

    def rate(self, name: str, seconds: float) -> float:
        """Return the steps per second of a part, measured for about `seconds`."""
        call, steps = self._calls[name]
        return steps * calls_per_second(call, seconds)

    def close(self) -> None:
        """Close the environments."""
        self._env.close()

    def _step(self) -> None:
        now = self._env.step(self._action)
        if self._env.spec.has_action_mask:
            # The mask has changed, and a forbidden action may be an error. Without a mask, one action serves always.
            self._action, _ = self._policy.act(now.observation, now.first)
