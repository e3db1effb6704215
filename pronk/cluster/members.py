"""The processes of a fleet, each over all its lives."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pronk.cluster.base import Attended, Event, Job

FIRST_BACKOFF, LAST_BACKOFF = 1.0, 30.0  # seconds
YOUNG_SECONDS = 60.0  # an end so soon counts as one in a row
LISTENING = re.compile(r"(?:learner (\d+)\W.*)?\blistening on \S+:(\d+) ")


@dataclass(frozen=True)
class Post:
    """Where a process is to run."""

    place: str
    """For people."""
    connect: Callable[[], Attended]
    host: str | None = None
    """As other machines reach it; None: the attendant tells."""
    devices: str | None = None


def listening(line: str) -> tuple[int, int] | None:
    """Which learner, and at which port, if that is what a learner's line tells. Learner 0 speaks for all."""
    found = LISTENING.search(line)
    return (int(found[1] or 0), int(found[2])) if found else None


class Member:
    """One process. `state`: away, connecting, here, started, ended."""

    def __init__(self, role: str, index: int, post: Post) -> None:
        self.role, self.index, self.post = role, index, post
        self.name = f"{role}-{index:03d}" if role == "actor" else f"{role}-{index}"
        self.state = "away"
        self.here: dict[str, Any] = {}
        self.last_lines: deque[str] = deque(maxlen=40)
        self.why = ""
        """It ended."""
        self.code: int | None = None
        self.lives = self.failures = 0
        self.mistaken = False
        """Trying again would be no use."""
        self._attended: Attended | None = None
        self._due = self._connected_at = 0.0

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.role} {self.index} on {self.place}"

    @property
    def place(self) -> str:
        """For people."""
        return self.here.get("place") or self.post.place

    @property
    def host(self) -> str:
        """As other machines reach it."""
        return self.post.host or self.here["host"]

    def connect_if_due(self) -> None:
        """To its machine; the process is started later."""
        if self.state == "away" and time.monotonic() >= self._due and not self.mistaken:
            self._attended = self.post.connect()
            self.state, self._connected_at = "connecting", time.monotonic()

    def start(self, job: Job) -> None:
        """The process itself."""
        assert self._attended is not None
        self.last_lines.clear()
        self._attended.start(job)
        self.state = "started"
        self.lives += 1

    def news(self) -> list[Event]:
        """What happened, with `state` and `last_lines` up to date."""
        if self._attended is None:
            return []
        happened = self._attended.events()
        for event in happened:
            if "here" in event:
                self.here, self.state = event["here"], "here"
            elif "line" in event:
                self.last_lines.append(event["line"])
            elif "exit" in event or "lost" in event:
                self._ended(event)
        return happened

    def stop(self) -> None:
        """Ask for an orderly end."""
        if self._attended is not None and self.state == "started":
            self._attended.stop()

    def drop(self) -> None:
        """Leave it as it is; its attendant ends it."""
        if self._attended is not None:
            self._attended.drop()
        self._attended = None
        if self.state != "ended":
            self.state = "away"

    def come_back(self) -> float:
        """After it ended: another try, after a pause that grows. Gives the pause."""
        young = time.monotonic() - self._connected_at < YOUNG_SECONDS
        self.failures = self.failures + 1 if young else 1
        pause = min(LAST_BACKOFF, FIRST_BACKOFF * 2 ** (self.failures - 1))
        self.drop()
        self.state, self.here = "away", {}
        self._due = time.monotonic() + pause
        return pause

    def _ended(self, event: Event) -> None:
        self.state, self.code = "ended", event.get("exit")
        if "lost" in event:
            self.why = event["lost"]
        elif self.code is not None and self.code < 0:
            self.why = f"killed by signal {-self.code}"
        else:
            lines = list(self.last_lines)
            told = [index for index, line in enumerate(lines) if line.startswith(("error:", "failed:"))]
            self.why = "\n".join(lines[told[-1] :]) if told else f"exit code {self.code}"
