"""Ctrl-C and SIGTERM: the first asks for an orderly end, the second ends at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

INTERRUPTED = 130  # exit code


class Interrupted(Exception):  # noqa: N818 - a request, not an error
    """The user asked for the end."""


class Interrupts:
    """While the block lasts, signals are noted and raised at the next `check`, between two updates."""

    def __init__(self) -> None:
        self._requested = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise `Interrupted` if a signal came."""
        if self._requested:
            raise Interrupted

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._requested:
            os._exit(INTERRUPTED)  # the actors end with this process
        self._requested = True
