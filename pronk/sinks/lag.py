"""lag.json: a histogram of policy lag since the process started, replaced atomically."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pronk.runs.status_file import write_status


class LagHistogram:
    """Writes the counts that `Metrics` keeps, with every line of metrics."""

    def __init__(self, path: Path, lags: Mapping[int, int], replayed: Mapping[int, int] | None = None) -> None:
        """`lags` and `replayed` map an age in updates to the number of columns of that age."""
        self._path, self._lags, self._replayed = path, lags, replayed if replayed is not None else {}

    def __enter__(self) -> LagHistogram:
        return self

    def __exit__(self, *_: object) -> None: ...

    def write(self, line: dict[str, Any]) -> None:
        """Write all counts anew; those of replayed columns where there are any."""
        status: dict[str, Any] = {"updates": line["updates"], "columns": sorted_counts(self._lags)}
        if self._replayed:
            status["replayed"] = sorted_counts(self._replayed)
        write_status(self._path, status)


def sorted_counts(lags: Mapping[int, int]) -> dict[str, int]:
    return {str(lag): count for lag, count in sorted(lags.items())}
