"""What a person sees of a fleet: the training's own display, fed from its metrics, and who is up."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pronk.cluster.members import Member
from pronk.sinks import Sink
from pronk.sinks.console import Display, PlainLines

LOOK_SECONDS = 0.5


class Progress:
    """Follows metrics.jsonl in the run directory."""

    def __init__(self, metrics: Path, display: Sink | None, say: Callable[[str], None]) -> None:
        self._metrics, self._display, self.say = metrics, display, say
        self._position, self._looked = (metrics.stat().st_size if metrics.exists() else 0), 0.0
        self._told = ""

    def look(self, learners: list[Member], actors: list[Member]) -> None:
        """Show what is new, if it is time."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        self._follow()
        told = who_is_up(learners, actors)
        if told != self._told and isinstance(self._display, Display | PlainLines):
            self._told = told
            self._display.note("hosts", told)

    def _follow(self) -> None:
        with contextlib.suppress(OSError, ValueError), open(self._metrics, "rb") as file:
            if self._metrics.stat().st_size < self._position:  # a resumed run forgets lines after its checkpoint
                self._position = 0
            file.seek(self._position)
            *lines, _ = file.read().split(b"\n")
            self._position += sum(len(line) + 1 for line in lines)
            if lines and self._display is not None:
                self._display.write(json.loads(lines[-1]))


def who_is_up(learners: list[Member], actors: list[Member]) -> str:
    """`learner: alpha; actors: 6 of 8 up (beta 4, gamma 2 of 4)`."""
    up = [member for member in learners if member.state == "started"]
    playing = Counter(member.place for member in actors if member.state == "started")
    wanted = Counter(member.place for member in actors)
    each = ", ".join(
        f"{place} {playing[place]}" if playing[place] == count else f"{place} {playing[place]} of {count}"
        for place, count in wanted.items()
    )
    who = ", ".join(dict.fromkeys(member.place for member in up)) or "none yet"
    return f"learner: {who}; actors: {sum(playing.values())} of {len(actors)} up ({each})"
