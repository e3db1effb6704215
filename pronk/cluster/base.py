"""The protocol for running a process on another machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pronk.processes.messages import Message, RunCommand


class RemoteProcess(Protocol):
    """A connection to a `ProcessRunner` on another machine, for one process. A restart needs a new one."""

    def run(self, command: RunCommand) -> None:
        """Start the process. Called once, after the message `RunnerReady`."""
        ...

    def receive(self) -> list[Message]:
        """Return the messages since the last call, without waiting. The last one ever is `Exited` or `RunnerLost`."""
        ...

    def stop(self) -> None:
        """Ask the process to save its work and end."""
        ...

    def close(self) -> None:
        """Close the connection. The other side then ends the process, if it still runs."""
        ...


@dataclass(frozen=True)
class Placement:
    """Where one process is to run."""

    label: str
    """What users call the machine."""
    connect: Callable[[], RemoteProcess]
    host: str | None = None
    """Name or address at which other machines reach it; None: `RunnerReady` has it."""
    devices: str | None = None
    """Value for CUDA_VISIBLE_DEVICES; None: leave it as it is."""
