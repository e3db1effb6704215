"""Keeps what environments print out of a command's result."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from pronk.processes.descriptors import STDERR, STDOUT, redirected


@contextlib.contextmanager
def environments_print_to_stderr() -> Iterator[None]:
    """Send everything that is printed inside the block to stderr, also by libraries in C.

    Stdout is for the result, which programs read: BabyAI prints a line whenever it draws a room anew, and
    `pronk eval --json` would not be JSON.
    """
    if sys.stdout is None:  # closed by the caller (`>&-`): the descriptor may belong to another file by now
        yield
        return
    sys.stdout.flush()
    with redirected(STDOUT, STDERR), contextlib.redirect_stdout(sys.stderr):
        yield
