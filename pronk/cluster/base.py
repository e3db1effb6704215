"""What the fleet asks of whatever carries it to other machines."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

Event = dict[str, Any]
"""One of {"here": ...}, {"started": pid, "shared": bool}, {"line": text}, {"file": path, ...}, {"gone": path},
{"exit": code} and, where the carrier itself failed, {"lost": why}. Plain values only."""

FILES, FILES_VARIABLE = "{files}", "PRONK_FILES"
"""In a job's arguments, and in its environment: the private folder that its files are put in."""


@dataclass(frozen=True)
class Job:
    """What an attendant shall run."""

    arguments: list[str]
    """Of `pronk`."""
    environment: dict[str, str] = field(default_factory=dict, repr=False)
    files: dict[str, str] = field(default_factory=dict, repr=False)
    run: str | None = None
    """The run directory there, to be mirrored here."""
    marker: str | None = None
    """A file beside the run directory; if it exists there, both machines see the same directory."""
    go_on: list[str] | None = None
    """Arguments to use instead where the run directory has a checkpoint. One without is removed: it was left by a
    learner that died too early."""

    def plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)


class Attended(Protocol):
    """A process on another machine, seen from here."""

    def start(self, job: Job) -> None:
        """Once, after the event `here`."""
        ...

    def events(self) -> list[Event]:
        """What has happened since, without waiting. The last event is `exit` or `lost`."""
        ...

    def stop(self) -> None:
        """Ask for an orderly end."""
        ...

    def drop(self) -> None:
        """Leave it; the other side then ends the process, in order if it can."""
        ...
