"""Sinks chosen by name in `run.sinks`: Weights & Biases, MLflow, or one of your own.

Each has a thread and a queue, so that a slow service or a dead network does not slow training. An error is reported
once, and training continues without the sink.
"""

from __future__ import annotations

import importlib.util
import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pronk.config.named import find
from pronk.sinks.base import Sink
from pronk.types import UserError

TABLE = {"wandb": "pronk.sinks.wandb:WeightsAndBiases", "mlflow": "pronk.sinks.mlflow:MLflow"}
MOST_LINES = 10_000  # queued for a slow service: hours of metrics
PATIENCE_SECONDS = 60.0  # for a sink to send what is queued when training is over
QUIET_SECONDS = 3.0  # of that wait, before the user is notified


class Facts(NamedTuple):
    """What a sink knows of the run."""

    name: str
    path: Path  # of the run directory
    config: dict[str, Any]


def check_sinks(names: Sequence[str]) -> None:
    """Raise if a sink does not exist or lacks its package; called before a run directory is made."""
    for name in names:
        if name in TABLE and importlib.util.find_spec(name) is None:
            raise UserError(f"run.sinks: {name} needs the package {name}: pip install 'pronk[{name}]'")
        if name not in TABLE:
            find("sink", name, TABLE)


def outside_sinks(names: Sequence[str], facts: Facts, say: Callable[[str], None]) -> list[Outside]:
    """Return the sinks of these names; each is made as `Class(facts)`, in its own thread."""
    return [Outside(name, lambda name=name: find("sink", name, TABLE)(facts), say) for name in names]  # type: ignore[misc]


class Outside:
    """A sink in a thread of its own."""

    def __init__(self, name: str, make: Callable[[], Sink], say: Callable[[str], None]) -> None:
        self._name, self._make, self._say = name, make, say
        self._lines: queue.Queue[tuple[str, dict[str, Any]] | None] = queue.Queue(MOST_LINES)
        self._problem: str | None = None
        self._said = False
        # A daemon: one that hangs must not keep the program from ending.
        self._thread = threading.Thread(target=self._work, name=f"sink {name}", daemon=True)

    def __enter__(self) -> Outside:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._hand_over(None)
        self._thread.join(min(QUIET_SECONDS, PATIENCE_SECONDS))
        if self._thread.is_alive() and PATIENCE_SECONDS > QUIET_SECONDS:
            self._say(f"run.sinks: waiting for {self._name}, {PATIENCE_SECONDS:g} s at most (Ctrl-C twice to leave)")
            self._thread.join(PATIENCE_SECONDS - QUIET_SECONDS)
        if self._thread.is_alive():
            self._problem = self._problem or f"not done {PATIENCE_SECONDS:g} s after the training; what is left is lost"
        self._say_problem()

    def write(self, line: dict[str, Any]) -> None:
        """Queue a line; never blocks."""
        self._hand_over(("write", dict(line)))

    def evaluated(self, line: dict[str, Any]) -> None:
        """Queue a line of eval.jsonl, for sinks that take them."""
        self._hand_over(("evaluated", dict(line)))

    def _hand_over(self, task: tuple[str, dict[str, Any]] | None) -> None:
        self._say_problem()
        try:
            self._lines.put_nowait(task)
        except queue.Full:
            self._problem = self._problem or "too slow; some lines are lost"
            if task is None:  # the thread must get it, or it would never end
                self._lines.get_nowait()
                self._lines.put_nowait(None)

    def _work(self) -> None:
        try:
            with self._make() as sink:
                self._problem = self._problem or getattr(sink, "problem", None)  # it works, but not as configured
                while (task := self._lines.get()) is not None:
                    kind, line = task
                    if hasattr(sink, kind):
                        getattr(sink, kind)(line)
        except (Exception, SystemExit) as error:  # a service's package may raise anything
            lines = str(error).strip().splitlines()
            self._problem = lines[0] if lines else type(error).__name__

    def _say_problem(self) -> None:
        """Report an error, from the thread of the training."""
        if self._problem and not self._said:
            self._said = True
            self._say(f"run.sinks: {self._name}: {self._problem} (the training is not affected)")


def remembered(path: Path) -> str | None:
    """Return the id of this run at the service, if it has one from before."""
    return path.read_text().strip() if path.is_file() else None


def numbers(line: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of a line, which are what a service can draw."""
    return {name: float(value) for name, value in line.items() if isinstance(value, int | float)}
