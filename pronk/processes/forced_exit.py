"""The end of a process whose main thread hangs: the cause is written, its children are killed, and it exits.

Nothing here may wait for that thread, nor for what it may hang on: a disk that does not answer, a pipe that nobody
reads, a lock that it holds. So each step runs in a thread of its own and has only a few seconds.

Only a process that runs a `pronk` command is ended (`allowed`). A user's program that calls `pronk.train` may hold much
else, such as a notebook.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

from pronk.processes import child
from pronk.processes.interrupts import SHOW_CURSOR
from pronk.processes.messages import Failed
from pronk.processes.reporting import report

STEP_SECONDS = 5.0
FAILED = 1  # exit code
_is_allowed = False


@contextlib.contextmanager
def allowed() -> Iterator[None]:
    """Let this process be ended while the block lasts."""
    global _is_allowed
    before, _is_allowed = _is_allowed, True
    try:
        yield
    finally:
        _is_allowed = before


def is_allowed() -> bool:
    """Return whether this process may be ended. A notebook's kernel may not, whatever runs in it."""
    return _is_allowed and "ipykernel" not in sys.modules


def in_time(step: Callable[[], object], seconds: float = STEP_SECONDS) -> bool:
    """Call a function in a thread of its own; return whether it ended within some seconds. Its errors are ignored."""

    def run() -> None:
        with contextlib.suppress(Exception):
            step()

    thread = threading.Thread(target=run, name="in time", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def end(message: str, record: Callable[[], None]) -> None:
    """End this process with exit code 1, as a failure. Does not return.

    Args:
        message: the cause; printed, and sent to the process that started this one.
        record: writes the cause to the run directory, without using anything that another thread may hold.
    """
    for step in (lambda: show(f"failed: {message}"), record, lambda: report(Failed(message)), child.kill_all):
        in_time(step)
    os._exit(FAILED)


def end_to_be_restarted(message: str) -> None:
    """End this process by SIGKILL. Does not return.

    Whatever supervises it takes that for a kill from outside, and restarts it. The first process of a container cannot
    kill itself: Linux ignores the signal. It exits with the code that shells use for a killed process.
    """
    for step in (lambda: show(message), child.kill_all):
        in_time(step)
    os.kill(os.getpid(), signal.SIGKILL)
    os._exit(128 + signal.SIGKILL)


def show(text: str) -> None:
    """Write to the standard error, past Python's files: another thread may hold their locks."""
    if os.isatty(1):
        os.write(1, SHOW_CURSOR)  # a live display had hidden it
    left = f"{text}\n".encode(errors="backslashreplace")
    while left:
        left = left[os.write(2, left) :]
