"""A child process: a program of its own, never a fork, so it has nothing of its parent's but what it is given."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Not `-m`: the parent's import path is set before anything of Pronk's or the user's is imported.
START = """
import importlib, json, sys
job = json.loads(sys.stdin.buffer.readline())
sys.path[:] = job["path"]
importlib.import_module(job["program"]).main(job)
"""


def start(
    program: str, job: dict[str, Any], log: Path, descriptors: Sequence[int] = (), answers: bool = False
) -> subprocess.Popen[bytes]:
    """Run `main(job)` of the module `program` in a process that writes to a log. Its standard input stays open; with
    `answers` its standard output is a pipe to the parent."""
    job = {**job, "program": program, "path": sys.path, "parent": os.getpid()}
    with open(log, "ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if answers else file,
            stderr=file,
            pass_fds=descriptors,
            start_new_session=True,  # the terminal's Ctrl-C is the parent's business
        )
    say_to(process, job)
    return process


def say_to(process: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
    """One line of JSON to its standard input. One that is dead does not hear; whoever watches it will notice."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()


def hang_up(process: subprocess.Popen[bytes]) -> None:
    """Close its standard input."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()


def end(process: subprocess.Popen[bytes]) -> None:
    """End it and whatever it started, at once."""
    hang_up(process)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def read_all(pipe: int) -> bytes:
    """What is in a pipe, without waiting: a child of the child may still hold the other end."""
    os.set_blocking(pipe, False)
    try:
        return os.read(pipe, 65536)
    except BlockingIOError:
        return b""


def where_it_is(process: subprocess.Popen[bytes], log: Path, seconds: float = 0.5) -> str:
    """Its stack, which `faulthandler` writes to the log when asked."""
    size = log.stat().st_size
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGUSR1)
    time.sleep(seconds)
    return log.read_bytes()[size:].decode(errors="replace").strip()


def tail(log: Path, lines: int = 15) -> str:
    """The end of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) or "(nothing)"
