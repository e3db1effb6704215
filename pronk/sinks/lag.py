"""lag.json: how old the experience was when it was learnt from, counted since the process started; always whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pronk.runs.status_file import write_status


class LagHistogram:
    """Writes counts that somebody else keeps whenever a line of metrics comes."""

    def __init__(self, path: Path, lags: Mapping[int, int]) -> None:
        self._path, self._lags = path, lags

    def __enter__(self) -> LagHistogram:
        return self

    def __exit__(self, *_: object) -> None: ...

    def write(self, line: dict[str, Any]) -> None:
        """All counts, anew."""
        columns = {str(lag): count for lag, count in sorted(self._lags.items())}
        write_status(self._path, {"updates": line["updates"], "columns": columns})
