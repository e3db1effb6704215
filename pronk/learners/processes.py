"""Further learners as processes of this machine, started by learner 0.

Like an actor's, each is a program of its own that reads its job from its standard input and ends with its parent.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

from pronk.learners.place import Place

GRACE_SECONDS = 5.0  # for a learner to end its actors, which have a grace of their own

# Not `-m`: learner 0's import path is set before anything of Pronk's or the user's is imported.
START = """
import json, sys
job = json.load(sys.stdin)
sys.path[:] = job["path"]
from pronk.learners.learner_process import main
main(job)
"""


class Processes:
    """Learners 1 to count - 1. Leaving the block ends them."""

    def __init__(self, place: Place, logs: Path) -> None:
        """`place` is learner 0's, with the address at which it listens."""
        self._place, self._logs = place, logs
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Processes:
        self._logs.mkdir(parents=True, exist_ok=True)
        try:
            for rank in range(1, self._place.count):
                self._start(rank)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """They have been told to end by now; after a grace they are made to."""
        deadline = time.monotonic() + GRACE_SECONDS
        for process in self._running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def log_of(self, rank: int) -> Path:
        """logs/learner-001.log."""
        return self._logs / f"learner-{rank:03d}.log"

    def ended(self) -> int | None:
        """One that is no longer there."""
        return next((rank for rank, process in self._running.items() if process.poll() is not None), None)

    def how_it_ended(self, rank: int) -> str:
        """In words."""
        try:
            code = self._running[rank].wait(1.0)
        except subprocess.TimeoutExpired:
            return f"it has hung up; its log: {self.log_of(rank)}"
        reason = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"{reason}; its log: {self.log_of(rank)}"

    def _start(self, rank: int) -> None:
        place = replace(self._place, rank=rank, rank_here=rank)
        with open(self.log_of(rank), "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", START],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # the terminal's Ctrl-C is learner 0's business
            )
        self._running[rank] = process
        job = {"place": asdict(place), "parent": os.getpid(), "path": sys.path}
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
            stdin.write(json.dumps(job).encode())
