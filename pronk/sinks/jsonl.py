"""metrics.jsonl and eval.jsonl: one JSON object per line, complete at every instant, appended to by a resumed run."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from pronk.runs.json_lines import as_json


class JsonLines:
    """Appends to a file, and evaluations to another; each line is flushed before `write` returns."""

    def __init__(self, path: Path, evaluations: Path | None = None) -> None:
        self._file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 - closed by __exit__
        self._evaluations = evaluations

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # a full disk, which was reported when a line could not be written
            self._file.close()

    def write(self, line: dict[str, Any]) -> None:
        """Append one object."""
        self._file.write(as_json(line))

    def evaluated(self, line: dict[str, Any]) -> None:
        """Append one object; the file does not exist before the first."""
        if self._evaluations is not None:
            with open(self._evaluations, "a", encoding="utf-8") as file:
                file.write(as_json(line))
