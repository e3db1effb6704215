"""notes.json: what the diagnosis found in the metrics, for the dashboard. Replaced atomically."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pronk.metrics.diagnosis import Diagnosis
from pronk.runs.status_file import write_status


class DiagnosisNotes:
    """Passes every line of metrics to the diagnosis; reports and writes what it finds."""

    def __init__(self, path: Path, diagnosis: Diagnosis, say: Callable[[str], None]) -> None:
        self._path, self._diagnosis, self._say = path, diagnosis, say
        self._written: list[dict[str, Any]] | None = [] if not path.exists() else None  # None: of an earlier session

    def __enter__(self) -> DiagnosisNotes:
        return self

    def __exit__(self, *_: object) -> None: ...

    def write(self, line: dict[str, Any]) -> None:
        """Have a line of metrics diagnosed."""
        for note in self._diagnosis.look(line):
            self._say(f"diagnosis: {note.message}")
        notes = [dataclasses.asdict(note) for note in self._diagnosis.notes]
        if notes != self._written:
            write_status(self._path, {"notes": notes})
            self._written = notes
