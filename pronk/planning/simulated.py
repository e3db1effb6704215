"""The simulated processes: actor, gateway, learner. Each waits for what its model in the real pipeline waits for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from pronk.pacing import Pacer

if TYPE_CHECKING:
    from pronk.planning.simulation import Simulation

MOST_PASSES = 8  # as in batcher.py, which imports torch; a test compares
STARVING_SECONDS = 1.0  # as in transport/shared_memory.py; likewise


class Unroll(NamedTuple):
    """A finished unroll: who played it, with which parameters."""

    actor: Actor
    version: int


class Actor:
    """Waits for a slot, plays an unroll, hands it over; see `actor.py` and `transport/grpc_actor.py`."""

    def __init__(self, learner: Learner) -> None:
        self._learner, self._simulation = learner, learner.simulation
        self._pipeline = learner.simulation.pipeline
        self.free = self._pipeline.slots
        self._version = self._version_to_come = 0
        self._until_sync = 0
        self._requested = self._arrived = False  # parameters over the network
        self._continue: Callable[[], None] | None = None
        self._waits_for_slot = False
        self.played = 0
        self.busy = 0.0

    def next(self) -> None:
        """Begin an unroll if there is a slot for it."""
        if not self.free:
            self._waits_for_slot = True
            return
        self.free -= 1
        self.played += 1
        due, self._until_sync = self._until_sync == 0, (self._until_sync or self._pipeline.sync_every) - 1
        if not due:
            self._play()
        elif not self._pipeline.network:
            self._version = self._learner.version
            self._play()
        else:
            self._request()
            if self._arrived:
                self._play_with_newest()
            else:
                self._continue = self._play_with_newest

    def release(self) -> None:
        """Get a slot back."""
        self.free += 1
        if self._waits_for_slot:
            self._waits_for_slot = False
            self.next()

    def _request(self) -> None:
        """Ask for the newest parameters, unless they are asked for already."""
        if self._requested:
            return
        self._requested = True
        self._simulation.clock.after(self._pipeline.pull_seconds, self._reply)

    def _reply(self) -> None:
        newest = self._learner.version
        nbytes = self._pipeline.parameters_bytes if newest != self._version else 0
        self._version_to_come = newest
        if nbytes and self._simulation.has_links:
            self._simulation.down.work(nbytes, self._receive)
        else:
            self._receive()

    def _receive(self) -> None:
        self._arrived = True
        if self._continue:
            then, self._continue = self._continue, None
            then()

    def _play_with_newest(self) -> None:
        self._version, self._requested, self._arrived = self._version_to_come, False, False
        self._play()

    def _play(self) -> None:
        pipeline, began = self._pipeline, self._simulation.clock.now
        seconds = pipeline.actor_seconds + (pipeline.send_seconds if pipeline.network else 0.0)

        def done() -> None:
            self.busy += self._simulation.clock.now - began
            self._hand_over(Unroll(self, self._version))
            self.next()

        if pipeline.one_machine:
            self._simulation.machine.work(seconds, done)
        else:
            self._simulation.clock.after(seconds, done)

    def _hand_over(self, unroll: Unroll) -> None:
        if not self._pipeline.network:
            self._learner.receive(unroll)
            return
        if self._pipeline.sync_every == 1 and self.free:  # parameters come down while the unroll goes up
            self._request()
        if self._simulation.has_links:
            self._simulation.up.work(self._pipeline.unroll_bytes, lambda: self._learner.gateway.receive(unroll))
        else:
            self._learner.gateway.receive(unroll)


class Gateway:
    """One process beside the learner, which copies one unroll after another into shared memory."""

    def __init__(self, learner: Learner) -> None:
        self._learner, self._simulation = learner, learner.simulation
        self.queue: deque[Unroll] = deque()
        self.busy = 0.0

    def receive(self, unroll: Unroll) -> None:
        """Called when an unroll has arrived over the network."""
        self.queue.append(unroll)
        if len(self.queue) == 1:
            self._work()

    def _work(self) -> None:
        began = self._simulation.clock.now

        def done() -> None:
            self.busy += self._simulation.clock.now - began
            self._learner.receive(self.queue.popleft())
            if self.queue:
                self._work()

        self._simulation.machine.work(self._simulation.pipeline.gateway_seconds, done)


class Learner:
    """Takes unrolls, makes updates, publishes; see `batcher.py` and the loop of `training.py`."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation, pipeline = simulation, simulation.pipeline
        self._pipeline = pipeline
        self.gateway = Gateway(self)
        self.actors = [Actor(self) for _ in range(pipeline.actors)]
        self.version = 0
        self._filled: deque[Unroll] = deque()
        self._most_passes = MOST_PASSES if pipeline.passes == "idle" else pipeline.passes
        self._passes = self._most_passes
        self._ready: deque[tuple[list[Unroll], bool]] = deque()  # batches, and whether they are fresh
        self._stacked: list[Unroll] = []
        updates = pipeline.batches_per_unroll * self._most_passes
        sets = max(1, pipeline.actors * pipeline.slots // pipeline.unrolls_per_batch)
        self._pacer = Pacer(updates, lambda: sets)
        self._paces = self._most_passes > 1 and pipeline.passes != "idle"
        self._waits_since: float | None = None
        self.learnt = self.most_lag = 0
        self.lags = self.lag_count = 0  # their sum and number: one for each unroll of each fresh batch
        self.waited = self.busy = 0.0

    def start(self) -> None:
        """Start the actors, one after another over the time of an unroll, and wait for the first batch."""
        for index, actor in enumerate(self.actors):
            self.simulation.clock.after(self._pipeline.actor_seconds * index / len(self.actors), actor.next)
        self._continue()

    def receive(self, unroll: Unroll) -> None:
        """Called when an unroll is in its slot, ready to be taken."""
        self._filled.append(unroll)
        if self._waits_since is not None and self._unrolls_are_there():
            self.waited += self.simulation.clock.now - self._waits_since
            self._waits_since = None
            self._stack(waited=True)
            self._update()

    def _unrolls_are_there(self) -> bool:
        return len(self._filled) >= self._pipeline.unrolls_per_batch

    def _continue(self) -> None:
        """What `Batcher.next` decides: another pass, new unrolls, or waiting for them."""
        if not self._ready:
            idle = self._pipeline.passes == "idle"
            if self._passes < self._most_passes and not (idle and self._unrolls_are_there()):
                self._pass()
            elif self._unrolls_are_there():
                self._stack(waited=False)
            else:
                self._wait()
                return
        self._update()

    def _wait(self) -> None:
        began = self._waits_since = self.simulation.clock.now

        def starve() -> None:
            if self._waits_since == began:
                self._pacer.give_all_back()

        self.simulation.clock.after(STARVING_SECONDS, starve)

    def _stack(self, waited: bool) -> None:
        self._stacked = [self._filled.popleft() for _ in range(self._pipeline.unrolls_per_batch)]
        taken = self._stacked

        def release() -> None:
            for unroll in taken:
                unroll.actor.release()

        if self._paces:
            self._pacer.taken(release, waited)
        else:
            release()
        self._passes = 0
        self._pass()

    def _pass(self) -> None:
        self._ready.extend((self._stacked, self._passes == 0) for _ in range(self._pipeline.batches_per_unroll))
        self._passes += 1

    def _update(self) -> None:
        pipeline, clock = self._pipeline, self.simulation.clock
        self._pacer.advance(len(self._ready) + (self._most_passes - self._passes) * pipeline.batches_per_unroll)
        unrolls, fresh = self._ready.popleft()
        if fresh:
            self._count(unrolls)
        began = clock.now

        def computed() -> None:
            self.busy += clock.now - began
            self.simulation.meet(self._publish)

        if pipeline.on_device:
            clock.after(pipeline.update_seconds, computed)
            self._prefetch()
        else:
            self.simulation.machine.work(pipeline.update_seconds, computed, pipeline.threads)

    def _prefetch(self) -> None:
        """Stage the next batch while the device computes, if its unrolls are there."""
        is_last_pass = self._pipeline.passes == "idle" or self._passes == self._most_passes
        if not self._ready and is_last_pass and self._unrolls_are_there():
            self._stack(waited=False)

    def _publish(self) -> None:
        self.version += 1
        self._continue()

    def _count(self, unrolls: list[Unroll]) -> None:
        """Count the lags of a fresh batch; and its unrolls, once the last of their batches is learnt from."""
        lag = [self.version - unroll.version for unroll in unrolls]
        self.lags += sum(lag)
        self.most_lag = max(self.most_lag, *lag)
        self.lag_count += len(unrolls)
        if not any(is_fresh and batch is unrolls for batch, is_fresh in self._ready):
            self.learnt += len(unrolls)
