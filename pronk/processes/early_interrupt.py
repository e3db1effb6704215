"""Ctrl-C while Python still imports: the process ends at once, without a traceback through other people's libraries.

A KeyboardInterrupt in the middle of an import is often caught there and reported as a broken installation. Nothing has
been started or written by then, so there is nothing to clean up. This module is imported before all others.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

INTERRUPTED = 130  # exit code


def end_during_imports() -> None:
    """Let the first Ctrl-C end the process if it comes during an import. Elsewhere it raises KeyboardInterrupt."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, as under nohup
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt
