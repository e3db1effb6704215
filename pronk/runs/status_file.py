"""Small files with the current state of something. A reader never sees a half-written one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_status(path: Path, status: dict[str, Any]) -> None:
    """Write to another name, then rename. Not synced to disk: nobody needs the file after a power cut."""
    aside = path.with_suffix(".tmp")
    try:
        aside.write_text(json.dumps(status) + "\n", encoding="utf-8")
        os.replace(aside, path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
