"""Beside every process of a fleet, on its machine: starts it, passes on what it says and writes, and ends it."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pronk.cluster.base import FILES, FILES_VARIABLE, Event
from pronk.cluster.mirror import Outgoing
from pronk.config import available_cores
from pronk.runs.reading import is_locked

MIRROR_SECONDS = 1.0  # between two looks at the run directory
MOST_CHANGES = 16  # of files, told at once
LOCK_SECONDS = 90.0  # for a learner that lost its fleet to write its checkpoint and go
START = "from pronk.cluster.attended import main; main({})"


class Attendant:
    """Looks after one process. Not thread-safe; `events` has to be called often."""

    def __init__(self, folder: str | None = None) -> None:
        """In this folder if there is one, else at home."""
        self._home = Path(folder).expanduser() if folder and Path(folder).expanduser().is_dir() else Path.home()
        self._heard: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._files: Path | None = None
        self._mirror: Outgoing | None = None
        self._changes: Iterator[Event] = iter(())
        self._exit: Event | None = None
        self._looked = 0.0
        self.ended = False

    def here(self) -> Event:
        """What the fleet should know before it decides what is to run here."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            return {"here": {"free_port": probe.getsockname()[1], "cores": available_cores()}}

    def start(self, job: dict[str, Any]) -> None:
        """See `Job`."""
        assert self._process is None, "one process each"
        run = self._home / job["run"] if job["run"] else None
        shared = bool(job["marker"]) and (self._home / job["marker"]).exists()
        arguments = job["arguments"]
        if run and job["go_on"] is not None:
            wait_until_unlocked(run)
            if any(run.glob("checkpoints/*.pt")):
                arguments = job["go_on"]
            else:
                shutil.rmtree(run, ignore_errors=True)
        self._mirror = Outgoing(run) if run and not shared else None
        self._files = Path(tempfile.mkdtemp(prefix="pronk-"))  # for this user only
        for name, text in job["files"].items():
            (self._files / name).write_text(text)
        self._process = subprocess.Popen(
            [sys.executable, "-c", START.format(os.getpid())]
            + [argument.replace(FILES, str(self._files)) for argument in arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=self._home,
            env={**os.environ, **job["environment"], FILES_VARIABLE: str(self._files), "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
        self._heard.put({"started": self._process.pid, "shared": shared})
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def events(self) -> list[Event]:
        """Since the last call, but not too many at once. `exit` comes last, after the last changes of files."""
        happened: list[Event] = []
        with contextlib.suppress(queue.Empty):
            while self._exit is None:
                event = self._heard.get_nowait()
                if "exit" in event:
                    self._exit, self._looked = event, 0.0
                else:
                    happened.append(event)
        changes = list(itertools.islice(self._changes, MOST_CHANGES))
        happened += changes
        if len(changes) == MOST_CHANGES:
            return happened
        if self._mirror and time.monotonic() - self._looked > MIRROR_SECONDS:
            self._looked = time.monotonic()
            self._changes = self._mirror.changes()
            self._mirror = None if self._exit else self._mirror  # this was the last look
        elif self._exit:
            happened.append(self._exit)
            self._clean()
        return happened

    def stop(self) -> None:
        """Ask for an orderly end, as Ctrl-C does."""
        self._signal(signal.SIGINT)

    def end(self, grace_seconds: float) -> None:
        """Orderly within the grace, then at once; nothing stays."""
        if self._process is not None:
            self.stop()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_seconds)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._clean()

    def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._heard.put({"line": line.rstrip("\n")})
        self._heard.put({"exit": self._process.wait()})

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _clean(self) -> None:
        if self._files:
            shutil.rmtree(self._files, ignore_errors=True)
        self.ended = True


def wait_until_unlocked(run: Path) -> None:
    """Whoever has it will end, because nobody looks after it any more."""
    deadline = time.monotonic() + LOCK_SECONDS
    while run.is_dir() and is_locked(run) and time.monotonic() < deadline:
        time.sleep(0.2)
