"""Actors as processes of this machine, and their supervisor.

A process is started as a program of its own (never forked), inherits its descriptors, and reads its job from its
standard input. Its failure comes back over a pipe and is raised here, where it was started.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from pronk.actors.base import ActorFailed, Play, Watch
from pronk.actors.board import ActorState, Board, State
from pronk.processes import legacy_child as child
from pronk.transport import LearnerPort
from pronk.transport.shared_memory import SharedMemoryTransport

WATCH_SECONDS = 0.1  # how often a look is worth its cost
GRACE_SECONDS = 2.0  # for an actor to finish its unroll when the run ends
YOUNG_SECONDS = 60.0  # an error so soon after a start counts as one in a row, even if unrolls came before it
FIRST_BACKOFF, LAST_BACKOFF = 0.1, 10.0  # seconds

CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)  # its own doing, not a kill


@contextlib.contextmanager
def playing(play: Play) -> Iterator[tuple[LearnerPort, Watch]]:
    """`actors.count` processes over shared memory."""
    nbytes = play.parameters.block.nbytes
    port = SharedMemoryTransport(play.layout, nbytes, play.config.actors.count, play.config.actors.slots)
    port.publish(play.parameters)
    with LocalLauncher(play, port) as launcher, port:  # the port closes first: that is how actors are told to end
        launcher.start()

        def look_after() -> None:
            play.interrupts.check()
            launcher.watch()

        port.while_waiting = look_after
        yield port, launcher.watch


class Tickets(Protocol):
    """What the supervisor asks of a transport."""

    def connect(self, actor: int) -> tuple[Any, contextlib.AbstractContextManager[Any]]:
        """What a new process of this actor needs to join (a dataclass), and what to close once it has inherited it."""
        ...

    def delivered(self, actor: int) -> int:
        """Unrolls this actor has sent, over all its lives."""
        ...

    def filled(self, actor: int) -> int:
        """How many of this actor's slots wait to be learnt from."""
        ...

    def silent_seconds(self, actor: int) -> float:
        """How long this actor has sent nothing although it could."""
        ...


@dataclass
class Worker:
    """One actor over all its lives."""

    index: int
    process: subprocess.Popen[bytes] | None = None
    failure_pipe: int = -1
    lives: int = 0
    failures: int = 0  # in a row
    started_at: float = 0.0
    delivered_at_start: int = 0
    due: float = 0.0  # when to start it again


class LocalLauncher:
    """`actors.count` processes."""

    def __init__(self, play: Play, transport: Tickets, guests: Callable[[], list[ActorState]] = list) -> None:
        """`guests`: actors that others look after, to be shown beside these."""
        self._play, self._settings, self._transport = play, play.config.actors, transport
        self._workers = [Worker(index) for index in range(play.config.actors.count)]
        self._guests, self._watched = guests, 0.0
        self._board = Board(play)

    def __enter__(self) -> LocalLauncher:
        return self

    def start(self) -> None:
        """Start every actor."""
        for worker in self._workers:
            self._start(worker)

    def __exit__(self, *_: object) -> None:
        """The ports are closed by now, so actors are on their way out; after a grace they are made to."""
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in self._workers:
            if worker.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    worker.process.wait(max(0.0, deadline - time.monotonic()))
                self._bury(worker)
        self._board.end()

    def watch(self) -> None:
        """Look after every worker, but not more often than is worth it."""
        now = time.monotonic()
        if now - self._watched < WATCH_SECONDS:
            return
        self._watched = now
        for worker in self._workers:
            if worker.process is None:
                if now >= worker.due:
                    self._start(worker)
            elif worker.process.poll() is not None:
                self._died(worker)
            elif self._transport.silent_seconds(worker.index) > self._settings.timeout_seconds:
                self._hangs(worker)
        self._board.show(lambda: [*map(self._seen, self._workers), *self._guests()])

    def _seen(self, worker: Worker) -> ActorState:
        port, slots = self._transport, self._settings.slots
        unrolls, filled = port.delivered(worker.index), port.filled(worker.index)
        state: State = "waiting" if filled == slots else "playing"
        if worker.process is None:
            state = "restarting"
        elif unrolls == worker.delivered_at_start:
            state = "starting"
        pid = worker.process.pid if worker.process is not None else None
        silent = round(port.silent_seconds(worker.index), 1)
        return ActorState(worker.index, state, unrolls, filled, slots, worker.lives, pid, silent)

    def log_of(self, worker: Worker) -> Path:
        """logs/actor-000.log."""
        return self._play.logs / f"actor-{worker.index:03d}.log"

    def _start(self, worker: Worker) -> None:
        ticket, inherited = self._transport.connect(worker.index)
        worker.failure_pipe, failure_end = os.pipe()
        job = {
            "config": self._play.config.to_yaml(),
            "actor": worker.index,
            "life": worker.lives,
            "generation": self._play.generation,
            "ticket": asdict(ticket),
            "layout": self._play.layout.digest,
            "failure_pipe": failure_end,
        }
        with inherited:
            worker.process = child.start(
                "pronk.actors.actor_process", job, self.log_of(worker), [*ticket.descriptors, failure_end]
            )
            os.close(failure_end)
        child.hang_up(worker.process)
        worker.lives += 1
        worker.started_at = time.monotonic()
        worker.delivered_at_start = self._transport.delivered(worker.index)

    def _died(self, worker: Worker) -> None:
        assert worker.process is not None
        code = worker.process.returncode
        told = child.read_all(worker.failure_pipe).decode(errors="replace").strip()
        self._bury(worker)
        if told:
            self._judge(worker, told, raised=True)
        else:
            reason = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            crashed = code > 0 or -code in CRASHES
            self._judge(worker, f"{reason}; its log ends with:\n{child.tail(self.log_of(worker))}", raised=crashed)

    def _hangs(self, worker: Worker) -> None:
        """Ask where it hangs, then end it. One that has told its failure hangs only in its own end."""
        assert worker.process is not None
        told = child.read_all(worker.failure_pipe).decode(errors="replace").strip()
        if told:
            self._bury(worker)
            self._judge(worker, told, raised=True)
            return
        stack = child.where_it_is(worker.process, self.log_of(worker))
        self._bury(worker)
        seconds = self._settings.timeout_seconds
        self._judge(
            worker, f"no unroll for {seconds:g} s (actors.timeout_seconds); it was here:\n{stack}", raised=False
        )

    def _bury(self, worker: Worker) -> None:
        """End the process and whatever it started, at once."""
        assert worker.process is not None
        child.end(worker.process)
        os.close(worker.failure_pipe)
        worker.process = None

    def _judge(self, worker: Worker, cause: str, raised: bool) -> None:
        """Start it again after a pause, or raise the root cause."""
        delivered = self._transport.delivered(worker.index) - worker.delivered_at_start
        young = time.monotonic() - worker.started_at < YOUNG_SECONDS
        worker.failures = worker.failures + 1 if not delivered or (raised and young) else 1
        nobody_ever_played = not any(self._transport.delivered(index) for index in range(len(self._workers)))
        settings = self._settings
        hopeless = raised and (nobody_ever_played or settings.on_error == "stop")
        if hopeless or worker.failures >= settings.max_failures:
            times = f" {worker.failures} times in a row" if worker.failures > 1 else ""
            raise ActorFailed(f"actor {worker.index} failed{times}: {cause}")
        pause = min(LAST_BACKOFF, FIRST_BACKOFF * 4 ** (worker.failures - 1))
        worker.due = time.monotonic() + pause
        lines = cause.splitlines()
        brief = lines[-1] if lines[0].startswith("Traceback") else lines[0].removesuffix(":").partition("; it")[0]
        self._play.say(f"actor {worker.index} failed ({brief}); it starts again. Its log: {self.log_of(worker)}")
