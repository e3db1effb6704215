"""logs/actors.json: what every actor does right now. The dashboard reads it; it is replaced atomically.

{"time": 1700000000.0, "running": true, "actors": [{"actor": 0, "state": "playing", ...}, ...]}
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

from pronk.actors.base import ActorSetup
from pronk.runs.status_file import write_status

SECONDS = 1.0  # between two updates

State = Literal["starting", "playing", "waiting", "restarting", "ended"]
"""`waiting`: all its slots are filled and the learner has taken none yet."""


@dataclass
class ActorState:
    """One actor as its supervisor sees it. The fields are the keys of the file."""

    actor: int
    state: State
    unrolls: int
    """Delivered, over all its lives."""
    filled: int = 0
    """Slots whose unrolls the learner has not freed yet."""
    slots: int = 0
    lives: int = 1
    pid: int | None = None
    silent_seconds: float = 0.0
    """Since its last unroll, although it had room for one."""
    machine: str = "this machine"
    steps_per_second: float | None = None
    """Played, whether valid or not; `StatusFile` computes it."""


class StatusFile:
    """Writes the file about once a second."""

    def __init__(self, setup: ActorSetup) -> None:
        self._path = setup.logs / "actors.json"
        self._steps_per_unroll = setup.config.actors.envs * setup.config.actors.unroll_length
        self._updated_at = 0.0
        self._actors: list[ActorState] = []

    def update(self, states: Callable[[], list[ActorState]]) -> None:
        """Write the actors' states, at most once a second."""
        now = time.monotonic()
        if now - self._updated_at < SECONDS:
            return
        before = {one.actor: one.unrolls for one in self._actors}
        self._actors = states()
        for one in self._actors:
            if one.actor in before:
                played = (one.unrolls - before[one.actor]) * self._steps_per_unroll
                one.steps_per_second = round(played / (now - self._updated_at), 1)
        self._updated_at = now
        self._write(running=True)

    def end(self) -> None:
        """Mark every actor as ended; the last rates stay."""
        for one in self._actors:
            one.state, one.pid, one.filled = "ended", None, 0
        self._write(running=False)

    def _write(self, running: bool) -> None:
        status = {"time": round(time.time(), 3), "running": running, "actors": [asdict(one) for one in self._actors]}
        with contextlib.suppress(OSError):  # a full disk must not end a run
            write_status(self._path, status)
