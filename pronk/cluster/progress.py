"""What users see of a run on other machines: the display of `pronk train`, fed from metrics.jsonl, and who is up."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pronk.cluster.remote_worker import RemoteWorker, State
from pronk.sinks import Sink
from pronk.sinks.console import Display, PlainLines

SHOW_SECONDS = 0.5


class Progress:
    """Follows metrics.jsonl in the run directory."""

    def __init__(self, metrics: Path, display: Sink | None, say: Callable[[str], None]) -> None:
        self._metrics, self._display, self.say = metrics, display, say
        self._position = metrics.stat().st_size if metrics.exists() else 0
        self._shown_at = 0.0
        self._hosts = ""

    def show(self, learners: list[RemoteWorker], actors: list[RemoteWorker]) -> None:
        """Show what is new, if it is time to."""
        if time.monotonic() - self._shown_at < SHOW_SECONDS:
            return
        self._shown_at = time.monotonic()
        self._show_metrics()
        hosts = describe_hosts(learners, actors)
        if hosts != self._hosts and isinstance(self._display, Display | PlainLines):
            self._hosts = hosts
            self._display.note("hosts", hosts)

    def _show_metrics(self) -> None:
        with contextlib.suppress(OSError, ValueError), open(self._metrics, "rb") as file:
            if self._metrics.stat().st_size < self._position:  # a resumed run drops lines after its checkpoint
                self._position = 0
            file.seek(self._position)
            *lines, _ = file.read().split(b"\n")
            self._position += sum(len(line) + 1 for line in lines)
            if lines and self._display is not None:
                self._display.write(json.loads(lines[-1]))


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
