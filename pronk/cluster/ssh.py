"""Attendants over the system's ssh: its agent, its known hosts and its configuration count."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import tempfile
import time
from pathlib import Path

from pronk.cluster.base import Event, Job
from pronk.cluster.hosts import Host

ALIVE_SECONDS = 5.0
MOST_BYTES = 8 << 20  # taken at once, so that nobody else waits long
OPTIONS = ("BatchMode=yes", "ConnectTimeout=20", "ServerAliveInterval=10", "ServerAliveCountMax=3")


class OverSsh:
    """One ssh per process."""

    def __init__(self, host: Host, program: str, folder: str | None, ssh_config: Path | None) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._said_alive = time.monotonic()
        self._buffer = bytearray()
        self._ended = False
        self._process = subprocess.Popen(
            command(host, program, folder, ssh_config),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # the terminal's Ctrl-C is the fleet's business
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def start(self, job: Job) -> None:
        """See `Attended`."""
        self._say({"start": job.plain()})

    def events(self) -> list[Event]:
        """See `Attended`."""
        if self._ended:
            return []
        if time.monotonic() - self._said_alive > ALIVE_SECONDS:
            self._said_alive = time.monotonic()
            self._say({"alive": True})
        assert self._process.stdout is not None
        over = self._process.poll() is not None  # before the last look, so that nothing is missed
        with contextlib.suppress(BlockingIOError):
            while len(self._buffer) < MOST_BYTES and (chunk := os.read(self._process.stdout.fileno(), 1 << 20)):
                self._buffer += chunk
        over = over and len(self._buffer) < MOST_BYTES
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = bytearray(rest)
        happened: list[Event] = []
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                event = None
            # Anything else is a greeting of the remote shell.
            happened.append(event if isinstance(event, dict) else {"line": line.decode(errors="replace")})
        if any("exit" in event for event in happened):
            self._ended = True
        elif over:
            self._ended = True
            happened.append({"lost": self._why()})
        return happened

    def stop(self) -> None:
        """See `Attended`."""
        self._say({"stop": True})

    def drop(self) -> None:
        """See `Attended`. The closed line is what the other side hears."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(0.5 if self._ended else 3.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()
        self._ended = True

    def _say(self, message: dict[str, object]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it is gone; `events` tells
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def _why(self) -> str:
        self._errors.seek(0)
        said = [line for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        return said[-1].strip() if said else f"ssh ended with code {self._process.returncode}"


def command(host: Host, program: str, folder: str | None, ssh_config: Path | None) -> list[str]:
    """ssh's arguments."""
    place = [*(["-F", str(ssh_config)] if ssh_config else []), *(["-p", str(host.port)] if host.port else [])]
    key = ["-i", str(Path(host.key_file).expanduser()), "-o", "IdentitiesOnly=yes"] if host.key_file else []
    options = [word for option in OPTIONS for word in ("-o", option)]
    target = f"{host.user}@{host.host}" if host.user else host.host
    there = f"cd {shlex.quote(folder)} && " if folder else ""
    return ["ssh", "-T", *place, *key, *options, target, f"{there}exec {program} attend"]
