"""Failures in the user's code: reported once, with the user's traceback and without Pronk's frames."""

from __future__ import annotations

import contextlib
import os
import signal
import sysconfig
import threading
import traceback
from collections.abc import Iterator
from types import FrameType

from pronk.processes.interrupts import Interrupted
from pronk.types import Failure, UserError


@contextlib.contextmanager
def user_code(who: str) -> Iterator[None]:
    """Turn an error of the user's environment, network or loss into a `Failure` that names `who`, what failed."""
    try:
        yield
    except (UserError, Failure, Interrupted):
        raise
    except Exception as error:
        raise Failure(f"{who} failed: {user_traceback(error)}") from error


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in code that takes longer. Only in the main thread: others cannot be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def give_up(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"it took longer than {seconds:g} s (actors.timeout_seconds)")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def user_traceback(error: Exception) -> str:
    """Return the traceback from the user's first frame on, without Pronk's frames."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(PRONK)]
    users = [index for index, frame in enumerate(frames) if not frame.filename.startswith(LIBRARIES)]
    kept = frames[users[0] :] if users else frames
    listed = "".join(traceback.format_list(kept))
    described = "".join(traceback.format_exception_only(error)).rstrip()
    return f"Traceback (most recent call last):\n{listed}{described}" if listed else described


PRONK = (os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep, contextlib.__file__)
LIBRARIES = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib"))
