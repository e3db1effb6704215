"""What users see of a run on other machines: the newest metrics, and which processes are up."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pronk.cluster.remote_worker import RemoteWorker, State
from pronk.runs import json_lines
from pronk.sinks import Sink
from pronk.sinks.console import Display, PlainLines

SHOW_SECONDS = 0.5
POINTS = 2  # lines to read at a time: the last one is shown


class Progress:
    """Follows metrics.jsonl in the run directory."""

    def __init__(self, metrics: Path, display: Sink | None, say: Callable[[str], None]) -> None:
        self._metrics, self._display, self.say = metrics, display, say
        self._read = json_lines.read(metrics, POINTS)  # a resumed run has lines already
        self._shown_at = 0.0
        self._hosts = ""

    def show(self, learners: list[RemoteWorker], actors: list[RemoteWorker]) -> None:
        """Show what is new, if it is time to."""
        if time.monotonic() - self._shown_at < SHOW_SECONDS:
            return
        self._shown_at = time.monotonic()
        self._read, _ = json_lines.follow(self._metrics, POINTS, self._read.file, self._read.end)
        if self._read.lines and self._display is not None:
            self._display.write(self._read.lines[-1])
        hosts = describe_hosts(learners, actors)
        if hosts != self._hosts and isinstance(self._display, Display | PlainLines):
            self._hosts = hosts
            self._display.note("hosts", hosts)


def describe_hosts(learners: list[RemoteWorker], actors: list[RemoteWorker]) -> str:
    """Return `learner: alpha; actors: 6 of 8 up (beta 4, gamma 2 of 4)`."""
    up = Counter(actor.label for actor in actors if actor.state is State.UP)
    wanted = Counter(actor.label for actor in actors)
    each = ", ".join(
        f"{label} {up[label]}" if up[label] == count else f"{label} {up[label]} of {count}"
        for label, count in wanted.items()
    )
    labels = ", ".join(dict.fromkeys(learner.label for learner in learners if learner.is_running)) or "none yet"
    return f"learner: {labels}; actors: {up.total()} of {len(actors)} up ({each})"
