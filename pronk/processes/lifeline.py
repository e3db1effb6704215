"""A child that ends with its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

SET_PARENT_DEATH_SIGNAL = 1  # prctl's


def die_with_parent(parent: int) -> None:
    """End this process when its parent is gone. On Linux the kernel does it, even while an environment hangs.

    Elsewhere the process finds its channel or socket closed when it next uses it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the call above: no signal would come
            os._exit(1)
