"""Measures a training from outside, between two of its lines of metrics."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pronk.config import Config

LOG_SECONDS = 0.1


class Span(NamedTuple):
    """What was trained between two lines."""

    seconds: float
    steps: int
    updates: int
    lag: float
    """Mean policy lag of these steps, in updates."""

    @property
    def rate(self) -> float:
        """Steps per second."""
        return self.steps / self.seconds


class Stopwatch:
    """Divides a training into spans of at least `seconds`. The first begins after a warm-up."""

    def __init__(self, seconds: float, warm_up: float, ready: Callable[[], bool] = lambda: True) -> None:
        """`warm_up`: seconds after the first line for which `ready` returned True."""
        self._seconds, self._warm_up, self._ready = seconds, warm_up, ready
        self._measure_from: float | None = None
        self._first: tuple[float, dict[str, Any]] | None = None
        self._before: dict[str, Any] = {}
        self._lags = 0.0  # policy lag times steps

    def span(self, line: dict[str, Any]) -> Span | None:
        """Take the next line; return the span that it completes, if it does. `restart` then begins the next one."""
        now = time.perf_counter()
        if self._measure_from is None:
            if not self._ready():
                return None
            self._measure_from = now + self._warm_up
        if self._first is None:
            if now >= self._measure_from:
                self._first, self._before, self._lags = (now, line), line, 0.0
            return None
        self._lags += (line["policy_lag"] or 0.0) * (line["env_steps"] - self._before["env_steps"])
        self._before = line
        began, first = self._first
        steps, updates = line["env_steps"] - first["env_steps"], line["updates"] - first["updates"]
        if now - began < self._seconds or not steps:
            return None
        return Span(now - began, steps, updates, self._lags / steps)

    def restart(self, settle: float) -> None:
        """Begin another span, `settle` seconds from now."""
        self._first, self._measure_from = None, time.perf_counter() + settle


def without_end(config: Config) -> Config:
    """Return the configuration of a training that goes on until it is stopped, and writes lines often.

    Nothing is sent to services, filmed or profiled: these would get figures of no use, and take time from training.
    """
    changes: dict[str, Any] = {
        "run.stop_return": None,
        "run.total_steps": 10**12,
        "run.total_seconds": None,
        "run.pause_steps": None,
        "run.log_every_seconds": LOG_SECONDS,
        "run.sinks": [],
        "run.video": False,
        "run.clip_every_steps": None,
        "run.profile_seconds": 0.0,
    }
    return config.replace(changes)


def all_actors_play(run: Path) -> bool:
    """Return whether each actor of a run has delivered an unroll."""
    try:
        actors = json.loads((run / "logs" / "actors.json").read_text(encoding="utf-8"))["actors"]
    except (OSError, ValueError):  # not there yet
        return False
    return all(actor["unrolls"] for actor in actors)
