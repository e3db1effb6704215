"""One learner or actor on another machine, over all its restarts."""

from __future__ import annotations

import time
from collections import deque
from enum import Enum, auto

from pronk.cluster.base import Placement, RemoteProcess
from pronk.processes.interrupts import INTERRUPTED
from pronk.processes.messages import (
    Exited,
    Failed,
    Joined,
    Listening,
    Message,
    Output,
    RunCommand,
    RunnerLost,
    RunnerReady,
)
from pronk.processes.restarts import End, RestartPolicy, Restarts, end_by_exit, end_by_failure

KEPT_LINES = 15  # of its output, for the message about a failure


class State(Enum):
    """The states of a worker, in order."""

    PAUSED = auto()
    """Before a start or restart."""
    CONNECTING = auto()
    READY = auto()
    """The runner on its machine waits for a command."""
    STARTED = auto()
    UP = auto()
    """A learner listens, an actor has joined its learner."""
    ENDED = auto()
    DISABLED = auto()
    """Ended for good: its machine lacks something, and a restart would not help."""


class RemoteWorker:
    """One process. The owner calls `connect_if_due` and `poll` often."""

    def __init__(self, role: str, index: int, placement: Placement, policy: RestartPolicy) -> None:
        self.role, self.index, self.placement = role, index, placement
        self.name = f"{role}-{index:03d}" if role == "actor" else f"{role}-{index}"
        self.state = State.PAUSED
        self.ready: RunnerReady | None = None
        self.lives = 0
        self._restarts = Restarts(policy)
        self.code: int | None = None
        """Its exit code, if it has ended; None if the connection was lost."""
        self.end: End | None = None
        """Why it ended, unless it ended as it should."""
        self.address: str | None = None
        """Where a learner listens, as other machines reach it."""
        self._process: RemoteProcess | None = None
        self._failed: Failed | None = None
        self._last_lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._was_up = False
        self._due = self._connected_at = 0.0

    @property
    def title(self) -> str:
        """What users call it."""
        return f"{self.role} {self.index} on {self.label}"

    @property
    def label(self) -> str:
        """What users call its machine."""
        return (self.ready and self.ready.label) or self.placement.label

    @property
    def host(self) -> str:
        """Return the name at which other machines reach its machine. Only after `RunnerReady`."""
        assert self.ready is not None
        return self.placement.host or str(self.ready.host)

    @property
    def is_running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self.state in (State.STARTED, State.UP)

    @property
    def ends_in_a_row(self) -> int:
        """How often it ended since it was last up."""
        return self._restarts.failures + self._restarts.kills

    def connect_if_due(self) -> None:
        """Connect to its machine, if it is time to."""
        if self.state is State.PAUSED and time.monotonic() >= self._due:
            self._process = self.placement.connect()
            self.state, self._connected_at = State.CONNECTING, time.monotonic()

    def run(self, command: RunCommand) -> None:
        """Start the process."""
        assert self._process is not None
        self._process.run(command)
        self.state = State.STARTED
        self.lives += 1

    def poll(self) -> list[Message]:
        """Return new messages, and keep `state` up to date."""
        messages = self._process.receive() if self._process is not None else []
        for message in messages:
            self._follow(message)
        return messages

    def stop(self) -> None:
        """Ask the process to save its work and end."""
        if self._process is not None and self.is_running:
            self._process.stop()

    def close(self) -> None:
        """Close the connection; a process that still runs is ended by its runner."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def pause_after_end(self) -> float | None:
        """Count the end, and return the seconds until a restart; None: give up."""
        assert self.end is not None
        return self._restarts.pause_after(self.end.is_fault, time.monotonic() - self._connected_at, self._was_up)

    def restart_in(self, seconds: float) -> None:
        """End the process if it runs, and start a new one after a pause."""
        self.close()
        self.state, self.ready, self.address, self.end, self._failed = State.PAUSED, None, None, None, None
        self._was_up = False
        self._last_lines.clear()
        self._due = time.monotonic() + seconds

    def _follow(self, message: Message) -> None:
        match message:
            case RunnerReady():
                self.ready, self.state = message, State.READY
            case Output(line):
                self._last_lines.append(line)
            case Listening(address):
                self.address = f"{self.host}:{address.rpartition(':')[2]}"
                self.state, self._was_up = State.UP, True
            case Joined():
                self.state, self._was_up = State.UP, True
            case Failed():
                self._failed = message
            case Exited(code):
                self.state, self.code = State.ENDED, code
                if self._failed is not None:
                    self.end = end_by_failure(self._failed)
                elif code == INTERRUPTED and self.role == "actor":  # of a learner it is an orderly end
                    self.end = End("interrupted on its machine", "interrupted on its machine", is_fault=False)
                elif code not in (0, INTERRUPTED):
                    self.end = end_by_exit(code, "\n".join(self._last_lines))
            case RunnerLost(reason):
                self.state, self.code = State.ENDED, None
                self.end = End(reason, reason, is_fault=False)
