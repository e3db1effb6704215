"""Ctrl-C, SIGTERM and SIGHUP: the first asks for an orderly end, a second Ctrl-C or SIGTERM ends at once.

SIGHUP comes when the terminal is closed or the SSH connection is lost, often twice: from the kernel and from the shell.
So a second SIGHUP is ignored. Under `nohup` the first is ignored, too. `timeout` sends its signal twice: to the
program, then to its process group. So two signals at once count as one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from pronk.processes.early_interrupt import INTERRUPTED as INTERRUPTED

SHOW_CURSOR = b"\x1b[?25h\n"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STANDARD_STREAMS = (0, 1, 2)
AT_ONCE_SECONDS = 0.3
SAVING = "saving"  # begins the line that is reported at the first signal


class Interrupted(BaseException):
    """The user asked for the end."""


class Interrupts:
    """While the block lasts, signals are noted and raised at the next `check`, between two updates.

    `say` gets one line when the first signal is acted upon.
    """

    def __init__(self, say: Callable[[str], None] = lambda message: None) -> None:
        self._say = say
        self.requested = False
        """Whether a signal came."""
        self.checks = 0
        """How often `check` or `poll` was called: grows as long as the run goes on or waits for others."""
        self._at_once = self._announced = False
        self._number, self._noted_at = signal.SIGINT, 0.0
        self._terminals: list[int] = []
        self._before: dict[int, Any] = {}
        self.look: Callable[[], None] = lambda: None
        """Also called by `check`: raises a subclass of `Interrupted` when the run is to end for another reason."""

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            self._terminals = [stream for stream in STANDARD_STREAMS if os.isatty(stream)]
            for number in SIGNALS:
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise `Interrupted` if a signal came."""
        self.checks += 1
        if self.requested:
            self.announce()
            raise Interrupted
        self.look()

    def poll(self) -> bool:
        """Return whether a signal came. For loops that wait for others and end in their own way."""
        self.checks += 1
        return self.requested

    def announce(self) -> None:
        """Report that the run is being saved, if a signal came and this was not reported yet."""
        if self.requested and not self._announced:
            self._announced = True
            again = "; Ctrl-C again abandons" if self._number == signal.SIGINT else f" ({self._number.name})"
            with contextlib.suppress(OSError, RuntimeError):  # a handler may interrupt another print
                self._say(f"{SAVING}{again}")

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """In this block a signal interrupts whatever runs: for the user's code, which may run for long."""
        self._at_once = True
        try:
            self.check()
            yield
        finally:
            self._at_once = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self._detach()
        if self.requested and (number == signal.SIGHUP or time.monotonic() - self._noted_at < AT_ONCE_SECONDS):
            return
        if self.requested and "ipykernel" in sys.modules:
            raise KeyboardInterrupt  # a notebook's kernel and all that it holds must survive
        if self.requested:
            if os.isatty(1):
                os.write(1, SHOW_CURSOR)  # a live display had hidden it
            os._exit(INTERRUPTED)  # the actors end with this process
        self.requested, self._number, self._noted_at = True, signal.Signals(number), time.monotonic()
        if self._at_once:
            self.announce()
            raise Interrupted

    def _detach(self) -> None:
        """Send what is printed from now on to /dev/null if the terminal is gone: every print would fail."""
        gone = [stream for stream in self._terminals if not os.isatty(stream)]
        if gone:
            null = os.open(os.devnull, os.O_RDWR)
            for stream in gone:
                os.dup2(null, stream)
            os.close(null)
