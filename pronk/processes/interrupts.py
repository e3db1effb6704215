"""Ctrl-C and SIGTERM: the first asks for an orderly end, the second ends at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

INTERRUPTED = 130  # exit code
SHOW_CURSOR = b"\x1b[?25h\n"


class Interrupted(BaseException):
    """The user asked for the end."""


class Interrupts:
    """While the block lasts, signals are noted and raised at the next `check`, between two updates."""

    def __init__(self) -> None:
        self._requested = self._at_once = False
        self._before: dict[int, Any] = {}
        self.look: Callable[[], None] = lambda: None
        """Also called by `check`: raises an `Interrupted` of its own when somebody else asks for the end."""

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
        self.look()

    @property
    def requested(self) -> bool:
        """Whether a signal came."""
        return self._requested

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """In this block a signal interrupts whatever runs: for the user's code, which may take its time."""
        self._at_once = True
        try:
            self.check()
            yield
        finally:
            self._at_once = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._requested:
            if os.isatty(1):
                os.write(1, SHOW_CURSOR)  # a live display had hidden it
            os._exit(INTERRUPTED)  # the actors end with this process
        self._requested = True
        if self._at_once:
            raise Interrupted
