"""TensorBoard curves over environment steps."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

NOT_CURVES = ("env_steps", "wall_seconds")


class TensorBoard:
    """Writes event files. A resumed run hides what lies beyond the step it goes on from."""

    def __init__(self, path: Path, first_step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary = Event, Summary
        self._writer = EventFileWriter(str(path))
        if first_step:
            start = SessionLog(status=SessionLog.START)
            self._writer.add_event(Event(wall_time=time.time(), step=first_step, session_log=start))

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def write(self, line: dict[str, Any]) -> None:
        """One point of every curve."""
        values = [
            self._summary.Value(tag=f"train/{name}", simple_value=value)
            for name, value in line.items()
            if value is not None and name not in NOT_CURVES
        ]
        event = self._event(wall_time=time.time(), step=line["env_steps"], summary=self._summary(value=values))
        self._writer.add_event(event)
