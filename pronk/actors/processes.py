"""Actors as processes of this machine, supervised by the learner."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any, Protocol

from pronk.actors.base import ActorSetup, Watch
from pronk.actors.status import ActorState, State, StatusFile
from pronk.policies import Inference, InferenceSetup, make_inference
from pronk.processes.restarts import RestartPolicy
from pronk.processes.supervisor import Child, Start, SupervisedProcess, Supervisor
from pronk.transport import LearnerPort
from pronk.transport.shared_memory import SharedMemoryTransport

GRACE_SECONDS = 2.0  # for an actor to finish its unroll when the run ends
STEADY_SECONDS = 60.0  # an error sooner after a start counts as one in a row, even if unrolls were delivered


@contextlib.contextmanager
def running_actors(setup: ActorSetup) -> Iterator[tuple[LearnerPort, Watch]]:
    """`actors.count` processes over shared memory."""
    nbytes = setup.parameters.block.nbytes
    port = SharedMemoryTransport(setup.layout, nbytes, setup.config.actors.count, setup.config.actors.slots)
    port.publish(setup.parameters)
    # On exit the port closes first, which asks the actors to end. To finish their unrolls they need the inference,
    # so that is closed last.
    with inference_for(setup, port) as inference, ActorProcesses(setup, port, inference) as actors, port:
        inference.start()
        actors.start()

        def watch() -> None:
            inference.watch()
            actors.watch()

        def while_waiting() -> None:
            setup.interrupts.check()
            watch()

        port.while_waiting = while_waiting
        yield port, watch


def inference_for(setup: ActorSetup, port: SharedMemoryTransport) -> Inference:
    """Return the learner's side of how its own actors choose actions."""
    return make_inference(InferenceSetup(setup.config, setup.layout, setup.mlp, port.reader(), setup.logs, setup.say))


class ActorTransport(Protocol):
    """What `ActorProcesses` needs of a transport."""

    def connect(self, actor: int) -> tuple[Any, contextlib.AbstractContextManager[Any]]:
        """Return what a new process of this actor needs (a dataclass), and what to close once it has inherited it."""
        ...

    def delivered(self, actor: int) -> int:
        """Return the number of unrolls that this actor has sent, over all its lives."""
        ...

    def filled(self, actor: int) -> int:
        """Return how many of this actor's slots wait to be learnt from."""
        ...

    def silent_seconds(self, actor: int) -> float:
        """Return how long this actor has sent nothing although it could."""
        ...


class ActorProcesses:
    """`actors.count` supervised processes. A `with` block: leaving it ends them."""

    def __init__(
        self,
        setup: ActorSetup,
        transport: ActorTransport,
        inference: Inference,
        remote: Callable[[], list[ActorState]] = list,
    ) -> None:
        """`remote` gives the states of remote actors, to be shown beside these."""
        self._setup, self._settings, self._transport, self._remote = setup, setup.config.actors, transport, remote
        self._inference = inference
        self._actors = [SupervisedProcess(self._child(index), setup.say) for index in range(self._settings.count)]
        self._supervisor = Supervisor(self._actors, GRACE_SECONDS)
        self._status = StatusFile(setup)

    def __enter__(self) -> ActorProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self._supervisor.stop()
        self._status.end()

    def start(self) -> None:
        """Start every actor."""
        self._supervisor.start()

    def watch(self) -> None:
        """Restart actors that died or hang. See `SupervisedProcess.poll` for what it raises."""
        if self._supervisor.watch():
            self._status.update(lambda: [*map(self._state, range(len(self._actors))), *self._remote()])

    def _child(self, index: int) -> Child:
        settings = self._settings
        return Child(
            name=f"actor {index}",
            program="pronk.actors.actor_process",
            log=self._setup.logs / f"actor-{index:03d}.log",
            prepare=partial(self._prepare, index),
            policy=RestartPolicy(settings.max_failures, steady_seconds=STEADY_SECONDS),
            progress=partial(self._transport.delivered, index),
            timeout_seconds=settings.timeout_seconds,
            silent_seconds=partial(self._silent_seconds, index),
            silence="no unroll",
            errors_are_final=self._errors_are_final,
            others_work=partial(self.somebody_plays, but=index),
        )

    def somebody_plays(self, but: int | None = None) -> bool:
        """Return whether an actor other than `but` has delivered since it was started, or remote ones play."""
        actors = (actor for index, actor in enumerate(self._actors) if index != but)
        return any(actor.process is not None and actor.progressed for actor in actors) or bool(self._remote())

    def _errors_are_final(self) -> bool:
        """Return whether an error ends the run: if configured, or if no actor has ever delivered an unroll."""
        return self._settings.on_error == "stop" or not any(map(self._transport.delivered, range(self._settings.count)))

    def _silent_seconds(self, index: int) -> float:
        """Return how long an actor was silent. Time before the inference server was up again does not count."""
        return min(self._transport.silent_seconds(index), self._inference.serving_seconds())

    def _prepare(self, index: int, life: int) -> Start:
        ticket, inherited = self._transport.connect(index)
        acting = self._inference.connect(index)
        to_close = contextlib.ExitStack()
        to_close.enter_context(inherited)
        to_close.enter_context(acting.inherited)
        job = {
            "config": self._setup.config.to_yaml(),
            "actor": index,
            "life": life,
            "generation": self._setup.generation,
            "ticket": asdict(ticket),
            "policy": acting.job,
            "layout": self._setup.layout.digest,
            "profile": str(self._setup.logs.parent / "profile"),
        }
        return Start(job, [*ticket.descriptors, *acting.descriptors], to_close)

    def _state(self, index: int) -> ActorState:
        actor, port, slots = self._actors[index], self._transport, self._settings.slots
        filled = port.filled(index)
        state: State = "waiting" if filled == slots else "playing"
        if actor.process is None:
            state = "restarting"
        elif not actor.progressed:
            state = "starting"
        pid = actor.process.pid if actor.process is not None else None
        silent = round(port.silent_seconds(index), 1)
        return ActorState(index, state, port.delivered(index), filled, slots, actor.lives, pid, silent)
