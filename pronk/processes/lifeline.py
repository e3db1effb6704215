"""A child that ends with its parent, whatever either is doing."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

SET_PARENT_DEATH_SIGNAL = 1  # prctl's


def die_with_parent(parent: int) -> None:
    """On Linux the kernel ends this process when its parent is gone, even while an environment hangs.

    Elsewhere the closed socket or pipe does, when the process next looks at it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
