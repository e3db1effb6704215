"""Reports that this process makes no progress: in a loss or a callback that hangs, or on a disk that does not answer.

Children are watched by their parent (`supervisor.py`); nobody watches the learner. Its stack is reported, but it is not
ended: it may be in a debugger, or the disk may come back, and Ctrl-C twice ends it at any time.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable

TICK_SECONDS = 1.0


class Watchdog:
    """A thread that reports when the thread that made it makes no progress. A `with` block."""

    def __init__(self, progress: Callable[[], int], seconds: float, report: Callable[[str], None]) -> None:
        """Watch this thread.

        Args:
            progress: a number that changes as long as the thread works, or waits for something that is watched itself.
            seconds: without a change, after which it is reported; then again whenever the time has doubled.
            report: gets a line and the stack, in the watchdog's thread.
        """
        self._progress, self._seconds, self._report = progress, seconds, report
        self._watched = threading.get_ident()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self.is_watching = True
        """False while the thread need not make progress, such as in the user's own loop."""

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(TICK_SECONDS)

    def _watch(self) -> None:
        last, still, limit = self._progress(), 0.0, self._seconds
        # Ticks are counted, not seconds: none pass while the whole process is stopped (SIGSTOP, a laptop that sleeps).
        while not self._ended.wait(TICK_SECONDS):
            now = self._progress()
            if now != last or not self.is_watching:
                last, still, limit = now, 0.0, self._seconds
                continue
            still += TICK_SECONDS
            if still >= limit:
                limit *= 2
                self._report(f"the learner has made no progress for {still:.0f} s; its stack:\n{self._stack()}")

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._watched)
        return "".join(traceback.format_stack(frame)).rstrip() if frame else "(its thread has ended)"
