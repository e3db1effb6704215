"""Redirects a file descriptor of this process for a while, so that output of libraries in C follows, too."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

STDOUT, STDERR = 1, 2


@contextlib.contextmanager
def redirected(descriptor: int, target: int) -> Iterator[None]:
    """Send what is written to a descriptor to another one while the block lasts. Nothing happens if one is closed."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # one of them is closed, as with `2>&-`
            kept = os.dup(descriptor)
            stack.callback(os.close, kept)
            os.dup2(target, descriptor)
            stack.callback(os.dup2, kept, descriptor)
            # C has a buffer of its own. What is left in it would be written after the block.
            stack.callback(ctypes.CDLL(None).fflush, None)
        yield
