"""Bounds the size of a child's log on disk.

A child's output goes straight to the file, so anything may flood it, such as a native library that logs every failed
connection to a port. The child's supervisor checks the size now and then.
"""

from __future__ import annotations

import os
from pathlib import Path

LARGEST = 8 << 20  # bytes; twice as many with the older half


def bound(log: Path, largest: int = LARGEST) -> None:
    """Keep the end of a log that has grown too large as LOG.old, and continue with an empty one.

    The file is emptied in place, because the child keeps it open. It was opened for appending, so the next line begins
    at the new end. What is written between copying and emptying is lost.
    """
    try:
        size = log.stat().st_size
        if size <= largest:
            return
        with open(log, "rb") as source, open(log.with_name(f"{log.name}.old"), "wb") as target:
            source.seek(size - largest)
            target.write(source.read(largest))
        os.truncate(log, 0)
    except OSError:  # removed, or a full disk: the run is more important than its log
        return
