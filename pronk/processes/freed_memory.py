"""How a process of ours deals with memory that it has freed."""

from __future__ import annotations

import contextlib
import ctypes


def keep_freed_memory() -> None:
    """For processes that fill large arrays all the time: the C library gives such blocks back to the kernel at once,
    and getting them anew costs more than filling them does (a fifth of a learner's time with 84x84 pictures)."""
    largest_kept, kept = -3, -1  # glibc's names: M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
    with contextlib.suppress(OSError, AttributeError):  # another C library
        library = ctypes.CDLL(None)
        library.mallopt(largest_kept, 32 << 20)
        library.mallopt(kept, 1 << 30)
