"""How a process of a fleet begins: it ends with its attendant, and hears its signals."""

from __future__ import annotations

import runpy
import signal

from pronk.processes.lifeline import die_with_parent


def main(attendant: int) -> None:
    """Run the command of `sys.argv`."""
    die_with_parent(attendant)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what started us may ignore it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})  # or, as Ray does, hold it back
    runpy.run_module("pronk", run_name="__main__")
