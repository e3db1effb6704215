"""Whole actors and whole updates, with all that they do around environment, policy and gradient.

`parts.py` measures the work that cannot be avoided, for the machine's limit. What training really takes is more: an
actor fills a slot of shared memory and sends its number, and the learner stacks batches, counts episodes and publishes
parameters. `pronk plan` simulates training with these costs.
"""

from __future__ import annotations

import contextlib

import torch

from pronk.actor import Actor, specs_for
from pronk.batcher import Batcher
from pronk.bench.timing import calls_per_second
from pronk.config import ResolvedConfig
from pronk.device import choose_device
from pronk.envs import make_env
from pronk.layout import UnrollLayout
from pronk.learner import Learner
from pronk.learners import LearnerGroup, SingleLearner
from pronk.metrics import Metrics
from pronk.policies.local import LocalInference
from pronk.transport.shared_memory import SharedMemoryActorPort, SharedMemoryTransport

RATE = 1e-9  # learning rate: the weights stay as they are, so that every update costs the same


class WholeParts:
    """One actor and one learner, joined by shared memory as in training, but in one process and one at a time."""

    def __init__(self, config: ResolvedConfig) -> None:
        self._config, self._stack = config, contextlib.ExitStack()
        self._env = self._stack.enter_context(contextlib.closing(make_env(config, config.actors.envs)))
        spec = self._env.spec
        self.learner = Learner(config, spec, choose_device(config.learner.device))
        specs = specs_for(config, spec, self.learner.network.state_spec)
        layout, parameters = UnrollLayout(specs), self.learner.parameters()
        self._needed = max(1, config.learner.batch_size // config.actors.envs)  # unrolls
        transport = SharedMemoryTransport(layout, parameters.block.nbytes, 1, 2 * self._needed)
        self._port = self._stack.enter_context(transport)
        self._port.publish(parameters)
        ticket, theirs = self._port.connect(0)
        self._actor_port = SharedMemoryActorPort(ticket, layout, parameters.block.nbytes)
        with theirs as descriptor:
            descriptor.detach()  # the actor's port has taken it
        policy = LocalInference.policy(config, spec, 1, {})
        self._actor = Actor(self._env, policy, self._actor_port, list(range(config.actors.envs)))
        self._batcher = Batcher(self._port, specs, config.learner.batch_size, self.learner.device)
        self._metrics = Metrics(spec.frames_per_step, spec.tasks)
        self._slots_hold_unrolls = False

    def rate(self, name: str, seconds: float) -> float:
        """Return the steps per second of a whole part, `actor` or `update`, measured for about `seconds`."""
        config = self._config
        steps = config.actors.unroll_length * (config.actors.envs if name == "actor" else config.learner.batch_size)
        torch.set_num_threads(config.actors.threads if name == "actor" else self.learner.threads)
        call = self.play if name == "actor" else self.update
        call()  # warm-up: what is only done once must not be measured
        return steps * calls_per_second(call, seconds)

    def play(self) -> None:
        """Play an unroll into a slot, and free the slot."""
        self._actor.advance()
        with self._port.unrolls(1):
            pass

    def update(self, group: LearnerGroup | None = None) -> None:
        """Make an update as `training.py` does, from unrolls that were played before."""
        if not self._slots_hold_unrolls:
            self._fill_slots()
        if self._port.waiting < self._needed:
            for _ in range(self._needed):
                with self._actor_port.unroll():
                    pass
        learner, batch = self.learner, self._batcher.next()
        self._metrics.count_lags(learner.version - batch.arrays.version, batch.fresh)
        done = (group or SingleLearner()).step(learner, batch, RATE, self._batcher.prefetch)
        if done:
            done.report.pop("learning_rate")
            self._metrics.record(done.experience, done.report)
        self._port.publish(learner.parameters())

    def _fill_slots(self) -> None:
        """Play into every slot once. `update` then sends these unrolls again and again."""
        for _ in range(2 * self._needed):
            self._actor.advance()
        with self._port.unrolls(2 * self._needed):
            pass
        self._slots_hold_unrolls = True

    def close(self) -> None:
        """Close the environments and the memory."""
        self._stack.close()
