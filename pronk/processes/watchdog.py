"""Notices that the learner makes no progress: in a loss or a callback that hangs, or on a disk that does not answer.

Children are watched by their parent (`supervisor.py`); nobody else watches the learner. First its stack is reported:
the disk may come back, and Ctrl-C twice ends it at any time. Much later it is ended, where that is allowed
(`forced_exit.py`).

A learner in a debugger or at a prompt waits for its user, and is left alone.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType

from pronk.processes.forced_exit import in_time

TICK_SECONDS = 1.0
REPORT_SECONDS = 10.0  # for a report, which may hang like the learner does: on a pipe that nobody reads
DEBUGGERS = ("bdb", "pdb", "cmd", "code", "IPython", "prompt_toolkit")  # modules on the stack while it waits
ATTACHED_DEBUGGER = "pydevd"  # module of debugpy (VS Code) and PyCharm, which keep their frames to themselves
KEY = "learner.timeout_seconds"


class Watchdog:
    """A thread that acts when the thread that made it makes no progress. A `with` block."""

    def __init__(
        self,
        progress: Callable[[], int],
        seconds: float,
        report: Callable[[str], None],
        end_after: float | None = None,
        end: Callable[[str], None] = lambda cause: None,
    ) -> None:
        """Watch this thread.

        Args:
            progress: a number that changes as long as the thread works, or waits for something that is watched itself.
            seconds: without a change, after which it is reported; then again whenever the time has doubled.
            report: gets a line and the stack, in another thread.
            end_after: seconds without a change, after which it is ended. None: never.
            end: ends it; gets the cause with the stack, in the watchdog's thread.
        """
        self._progress, self._seconds, self._report = progress, seconds, report
        self._end_after, self._end = end_after, end
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
            if now != last or not self.is_watching or waits_for_user(self._frame()):
                last, still, limit = now, 0.0, self._seconds
                continue
            still += TICK_SECONDS
            if self._end_after is not None and still >= self._end_after:
                cause = f"the learner has made no progress for {still:.0f} s ({KEY}); it was here:\n{self._stack()}"
                return self._end(cause)
            if still >= limit:
                limit *= 2
                soon = f" (after {self._end_after:.0f} s the run is ended: {KEY})" if self._end_after else ""
                message = f"the learner has made no progress for {still:.0f} s{soon}; its stack:\n{self._stack()}"
                in_time(lambda message=message: self._report(message), REPORT_SECONDS)  # type: ignore[misc]

    def _frame(self) -> FrameType | None:
        """Return where the thread is; None if it has ended."""
        return sys._current_frames().get(self._watched)

    def _stack(self) -> str:
        frame, lines = self._frame(), list[str]()
        # Python reads the lines of code from files, and theirs may be the disk that does not answer.
        if frame and in_time(lambda: lines.extend(traceback.format_stack(frame))):
            return "".join(lines).rstrip()
        while frame:
            lines.insert(0, f'  File "{frame.f_code.co_filename}", line {frame.f_lineno}, in {frame.f_code.co_name}')
            frame = frame.f_back
        return "\n".join(lines) or "(its thread has ended)"


def waits_for_user(frame: FrameType | None) -> bool:
    """Return whether a thread that is here waits for its user: in a debugger, or at a prompt on a terminal."""
    if ATTACHED_DEBUGGER in sys.modules:
        return True
    if frame and "input" in frame.f_code.co_names and os.isatty(0):  # a built-in function has no frame
        return True
    # Only what Pronk has called: in a notebook all of it runs inside IPython.
    while frame and (module := str(frame.f_globals.get("__name__"))).partition(".")[0] != "pronk":
        if module.partition(".")[0] in DEBUGGERS:
            return True
        frame = frame.f_back
    return False
