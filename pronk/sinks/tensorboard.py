"""TensorBoard curves over environment steps."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path
from typing import Any

NOT_CURVES = ("env_steps", "wall_seconds")
# The curve of a task has the task's name after a slash.
EVALUATION_CURVES = (
    *("mean", "std", "min", "max", "mean_length", "seconds"),
    *("human_normalised", "human_normalised_median", "human_normalised_capped"),
)


class TensorBoard:
    """Writes an event file, without tensorboard's writing thread: an error is raised where it happens.

    A resumed run makes TensorBoard hide the points beyond the step that it continues from.
    """

    def __init__(self, folder: Path, first_step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = Event, Summary
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}"
        self._records = RecordWriter(open(folder / name, "wb"))  # noqa: SIM115 - closed by __exit__
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
        if first_step:
            start = SessionLog(status=SessionLog.START)
            self._write(Event(wall_time=time.time(), step=first_step + 1, session_log=start))

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # a full disk, which was reported when a line could not be written
            self._records.close()

    def write(self, line: dict[str, Any]) -> None:
        """One point of every curve."""
        names = [name for name, value in line.items() if value is not None and name not in NOT_CURVES]
        self._points("train", line, names)

    def evaluated(self, line: dict[str, Any]) -> None:
        """The same, at the step of the checkpoint that was evaluated."""
        names = [name for name in line if name.partition("/")[0] in EVALUATION_CURVES]
        self._points("eval", line, [name for name in names if line[name] is not None])

    def _points(self, group: str, line: dict[str, Any], names: list[str]) -> None:
        values = [self._summary.Value(tag=f"{group}/{name}", simple_value=line[name]) for name in names]
        self._write(self._event(wall_time=time.time(), step=line["env_steps"], summary=self._summary(value=values)))

    def _write(self, event: Any) -> None:
        self._records.write(event.SerializeToString())
        self._records.flush()
