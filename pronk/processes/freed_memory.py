"""How the C library deals with memory that this process has freed."""

from __future__ import annotations

import contextlib
import ctypes


def keep_freed_memory() -> None:
    """Keep freed memory for reuse, in processes that allocate large arrays all the time.

    By default glibc returns such blocks to the kernel at once, and mapping them again costs more than filling them (a
    fifth of a learner's time with 84x84 pictures).
    """
    largest_kept, kept = -3, -1  # glibc's names: M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
    with contextlib.suppress(OSError, AttributeError):  # another C library
        library = ctypes.CDLL(None)
        library.mallopt(largest_kept, 32 << 20)
        library.mallopt(kept, 1 << 30)
