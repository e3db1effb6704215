"""metrics.jsonl and eval.jsonl: one JSON object per line, complete at every instant, appended to by a resumed run."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import Any


class JsonLines:
    """Appends to a file, and evaluations to another; every line is on disk's way when `write` returns."""

    def __init__(self, path: Path, evaluations: Path | None = None) -> None:
        self._file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 - closed by __exit__
        self._evaluations = evaluations

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # of a full disk; it was said when a line could not be written
            self._file.close()

    def write(self, line: dict[str, Any]) -> None:
        """One object."""
        self._file.write(as_json(line))

    def evaluated(self, line: dict[str, Any]) -> None:
        """One object; the file is not there before the first."""
        if self._evaluations is not None:
            with open(self._evaluations, "a", encoding="utf-8") as file:
                file.write(as_json(line))


def as_json(line: dict[str, Any]) -> str:
    """A line of the file."""
    return json.dumps({name: plain(value) for name, value in line.items()}) + "\n"


def plain(value: Any) -> Any:
    """JSON has no NaN or infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
