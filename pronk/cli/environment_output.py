"""Keeps what environments print out of a command's result."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

STDOUT, STDERR = 1, 2


@contextlib.contextmanager
def environments_print_to_stderr() -> Iterator[None]:
    """Send everything that is printed inside the block to stderr, also by libraries in C.

    Stdout is for the result, which programs read: BabyAI prints a line whenever it draws a room anew, and
    `pronk eval --json` would not be JSON.
    """
    sys.stdout.flush()
    try:
        kept = os.dup(STDOUT)
        os.dup2(STDERR, STDOUT)
    except OSError:  # closed by the caller: there is nothing to protect
        yield
        return
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, STDOUT)
        os.close(kept)
