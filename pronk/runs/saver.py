"""When checkpoints are written: from time to time, at a new best, and at the end in any case."""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pronk.runs.checkpoint import Checkpoints
from pronk.types import Failure

LAST_PAUSES = (0.0, 1.0, 1.0, 1.0)  # seconds before each attempt to write the last checkpoint
BEST_EVERY_SECONDS = 5.0  # a new best is saved no more often,
BEST_SHARE = 0.01  # and takes no more of the time than this

Standing = tuple[bool, float]  # see Metrics.standing


class CheckpointSaver:
    """Writes the checkpoints of one run. A full disk is reported; the last checkpoint is kept and training continues.

    `state` returns the content of a checkpoint without `best`, or raises if the weights are no longer finite.
    """

    def __init__(
        self, checkpoints: Checkpoints, keep: int, state: Callable[[], dict[str, Any]], say: Callable[[str], None]
    ) -> None:
        self._checkpoints, self._keep, self._state, self._say = checkpoints, keep, state, say
        self.best: Standing = (False, -math.inf)
        self._written_at = time.monotonic()
        self._write_seconds = 0.0  # that the last checkpoint took
        self.last: Path | None = None  # None: nothing was saved yet, or the last attempt failed

    def restore(self) -> dict[str, Any]:
        """Return the newest checkpoint that can be read. Newer ones that cannot are set aside."""
        state, problems = self._checkpoints.restore()
        for path, problem in problems.items():
            path.rename(path.with_suffix(".broken"))  # else it would still count as the newest
            self._say(f"{problem}; set aside, going back to the one before it")
        self.best = max(tuple(state["best"]), self._checkpoints.best_standing())
        self.last = self._checkpoints.saved()[-1]
        return state

    def save(self, standing: Standing | None) -> Path | None:
        """Write a checkpoint; it becomes best.pt too if its standing is the highest yet.

        Returns:
            Its path, or None if it could not be written.
        """
        best = standing is not None and standing >= self.best
        with self._writing():
            state = self._state() | {"best": standing if best else self.best}
            self.last = None  # in case the next line raises
            self.last = self._checkpoints.save(state, self._keep, best)
            self.best = state["best"]
        return self.last

    def save_if_best(self, standing: Standing | None) -> None:
        """Write best.pt if the standing is the highest yet, not too often. The other checkpoints stay as they are."""
        if standing is None or not standing[0] or standing <= self.best:
            return
        if time.monotonic() - self._written_at < max(BEST_EVERY_SECONDS, self._write_seconds / BEST_SHARE):
            return
        with self._writing():
            self._checkpoints.save_best(self._state() | {"best": standing})
            self.best = standing

    def save_last(self, standing: Standing | None) -> Failure | None:
        """Write the last checkpoint. If its disk stays full, write it elsewhere and return that as a failure."""
        for pause in LAST_PAUSES:
            time.sleep(pause)
            if self.save(standing):
                return None
        folder = self._checkpoints.folder
        try:
            elsewhere = Path(tempfile.mkdtemp(prefix=f"{folder.parent.name}-"))
            saved = Checkpoints(elsewhere).save(self._state() | {"best": self.best}, keep=1)
        except (OSError, RuntimeError):
            return Failure(f"the last checkpoint could be written neither to {folder} nor to {tempfile.gettempdir()}")
        return Failure(f"the last checkpoint could not be written to {folder}: move it there from {saved}")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Time the writing of a checkpoint, and report a full disk."""
        began = time.monotonic()
        try:
            yield
        except (OSError, RuntimeError) as error:
            self._say(f"cannot write a checkpoint: {error}; the last one is kept")
        self._written_at = time.monotonic()
        self._write_seconds = self._written_at - began
