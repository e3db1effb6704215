"""Beside every process of a fleet, on its machine: starts it, passes on what it says and writes, and ends it."""

from __future__ import annotations

import contextlib
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
from pathlib import Path
from typing import Any

from pronk.config import available_cores
from pronk.fleet.base import FILES, FILES_VARIABLE, Event
from pronk.fleet.mirror import Outgoing

MIRROR_SECONDS = 1.0  # between two looks at the run directory
START = "from pronk.fleet.attended import main; main({})"


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
        if run and job["start_over"] and not any(run.glob("checkpoints/*.pt")):
            shutil.rmtree(run, ignore_errors=True)
        self._mirror = Outgoing(run) if run and not shared else None
        self._files = Path(tempfile.mkdtemp(prefix="pronk-"))  # for this user only
        for name, text in job["files"].items():
            (self._files / name).write_text(text)
        self._process = subprocess.Popen(
            [sys.executable, "-c", START.format(os.getpid())]
            + [argument.replace(FILES, str(self._files)) for argument in job["arguments"]],
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
        """Since the last call. After `exit` there are no more."""
        happened: list[Event] = []
        with contextlib.suppress(queue.Empty):
            while True:
                happened.append(self._heard.get_nowait())
        at_end = bool(happened) and "exit" in happened[-1]
        if self._mirror and (at_end or time.monotonic() - self._looked > MIRROR_SECONDS):
            self._looked = time.monotonic()
            happened[len(happened) - at_end : len(happened) - at_end] = self._mirror.changes()
        if at_end:
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
