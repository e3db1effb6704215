"""The logs of a run's processes, followed from where the page has read to."""

from __future__ import annotations

import codecs
import os
from pathlib import Path
from typing import Any

from pronk.runs import json_lines
from pronk.runs.reading import printable, stamp

PATTERNS = ("*.log", "*.log.old", "learner-*/*.log", "learner-*/*.log.old")  # below logs/
MOST_BYTES = 64 * 1024  # of one answer


def all_logs(run: Path) -> list[dict[str, Any]]:
    """Return name, size and time of change of every log of a run. Links to files outside of the run are left out."""
    folder, found = run / "logs", []
    for path in sorted(path for pattern in PATTERNS for path in folder.glob(pattern)):
        if path.is_file() and path.resolve().is_relative_to(run.resolve()):
            _, size, changed = stamp(path)
            found.append({"name": path.relative_to(folder).as_posix(), "bytes": size, "changed": changed / 1e9})
    return found


def read_log(path: Path, known: int, after: int) -> dict[str, Any]:
    """Return what was appended to the file `known` (its inode) since `after`; of a new file or much text, the end."""
    try:
        with json_lines.open_regular(path) as file:
            status = os.fstat(file.fileno())
            goes_on = status.st_ino == known and after <= status.st_size
            start = max(after if goes_on else 0, status.st_size - MOST_BYTES)
            file.seek(start)
            content = json_lines.read_exactly(file, status.st_size - start)
    except OSError:
        return {"text": "", "after": 0, "file": "0", "goes_on": known == 0, "skipped": 0}
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(content)
    unfinished = len(decoder.getstate()[0])  # bytes of a letter that is still being written
    return {
        "text": printable(text.replace("\r\n", "\n").replace("\r", "\n"), "\n\t"),
        "after": start + len(content) - unfinished,
        "file": str(status.st_ino),
        "goes_on": goes_on,
        "skipped": start - (after if goes_on else 0),
    }
