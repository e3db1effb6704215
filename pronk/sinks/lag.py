"""lag.json: how old the experience was when it was learnt from, counted since the process started; always whole."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class LagHistogram:
    """Writes counts that somebody else keeps whenever a line of metrics comes."""

    def __init__(self, path: Path, lags: Mapping[int, int]) -> None:
        self._path, self._aside, self._lags = path, path.with_suffix(".tmp"), lags

    def __enter__(self) -> LagHistogram:
        return self

    def __exit__(self, *_: object) -> None: ...

    def write(self, line: dict[str, Any]) -> None:
        """Aside, then renamed. Not synced: after a power cut it is worth nothing."""
        columns = {str(lag): count for lag, count in sorted(self._lags.items())}
        self._aside.write_text(json.dumps({"updates": line["updates"], "columns": columns}) + "\n", encoding="utf-8")
        os.replace(self._aside, self._path)
