"""What a full disk must not break: the installation, and child processes.

Python writes the compiled code of a module beside it, and does not notice if only part of it was written. On a full
disk that leaves a truncated file, and from then on every import of the module fails (`marshal data too short`). So
nothing is compiled to disk while a run is trained: by then almost everything is imported.
"""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Iterator

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # a full disk, a quota, `ulimit -f`, read-only
NO_COMPILED_FILES = "-B"  # the same as an option of Python


@contextlib.contextmanager
def no_compiled_files() -> Iterator[None]:
    """Write no .pyc files in this block."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before
