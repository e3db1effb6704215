"""Functions that a user gives to `pronk.train`, called from the training loop.

They run in the learner's thread, between two updates: a slow one slows training. One that returns False stops the run,
with a checkpoint and the outcome `stopped`; an exception ends it as `failed` and is raised by `pronk.train`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pronk.processes.interrupts import Interrupted
from pronk.types import Array, Unroll

OnLine = Callable[[dict[str, Any]], Any]
OnCheckpoint = Callable[[Path], Any]


class Stopped(Interrupted):
    """A callback returned False, or `Trainer.stop` was called."""


class Callbacks:
    """A sink that calls the functions it was given.

    Args:
        on_metrics: gets each line of metrics.jsonl, about once a second (`run.log_every_seconds`).
        on_episode: gets every episode that ended, as its batch is learnt from: `episode_return`, `episode_length`,
            `task`, `environment` (its number), and the numbers of `env.info` in its last step.
        on_checkpoint: gets the path of each checkpoint after it was written.
        on_evaluation: gets each line of eval.jsonl (`evaluation.enabled=true`).
    """

    def __init__(
        self,
        on_metrics: OnLine | None = None,
        on_episode: OnLine | None = None,
        on_checkpoint: OnCheckpoint | None = None,
        on_evaluation: OnLine | None = None,
    ) -> None:
        self._on_metrics, self._on_episode = on_metrics, on_episode
        self._on_checkpoint, self._on_evaluation = on_checkpoint, on_evaluation
        self._stop = False
        self._error: Exception | None = None

    @property
    def given(self) -> bool:
        """Whether there is any function to call."""
        return any((self._on_metrics, self._on_episode, self._on_checkpoint, self._on_evaluation))

    def __enter__(self) -> Callbacks:
        return self

    def __exit__(self, *_: object) -> None: ...

    def write(self, line: dict[str, Any]) -> None:
        """See `Sink.write`."""
        self._call(self._on_metrics, dict(line))

    def evaluated(self, line: dict[str, Any]) -> None:
        """See `EvaluationSink.evaluated`."""
        self._call(self._on_evaluation, dict(line))

    def saved(self, path: Path) -> None:
        """Report a checkpoint."""
        self._call(self._on_checkpoint, path)

    def played(self, batch: Unroll, fresh: Array, tasks: Sequence[str]) -> None:
        """Report the episodes that ended in the fresh columns of a batch (NumPy arrays), in the order of their ends."""
        if self._on_episode is None:
            return
        for step, column in np.argwhere(~np.isnan(batch.episode_return) & fresh):
            self._call(self._on_episode, episode_line(batch, int(step), int(column), tasks))

    def stop(self) -> None:
        """End the run at the next `check`."""
        self._stop = True

    def check(self) -> None:
        """Raise what a callback raised, or `Stopped`. Called between two updates."""
        self.raise_error()
        if self._stop:
            raise Stopped

    def raise_error(self) -> None:
        """Raise what a callback raised, if anything."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _call(self, function: Callable[[Any], Any] | None, fact: Any) -> None:
        """Call a function; nothing more is called once one has failed or stopped the run.

        An exception is kept for `check`, not raised here: callbacks are also called after the loop has ended, when the
        last line and the last checkpoint must still be written.
        """
        if function is None or self._stop or self._error is not None:
            return
        try:
            if function(fact) is False:
                self._stop = True
        except Exception as error:
            self._error = error


def episode_line(batch: Unroll, step: int, column: int, tasks: Sequence[str]) -> dict[str, Any]:
    """Return what `on_episode` gets."""
    numbers = {f"info/{name}": float(values[step, column]) for name, values in batch.info.items()}
    return {
        "episode_return": float(batch.episode_return[step, column]),
        "episode_length": int(batch.episode_length[step, column]),
        "task": tasks[int(batch.task[column])],
        "environment": int(batch.environment[column]),
        **{name: value for name, value in numbers.items() if not np.isnan(value)},
    }
