"""A child process: a program of its own, never a fork, so that it shares nothing with its parent but what it is given.

`start` is the parent's side, `main` the child's. Between them is one channel; the child's output goes to its log.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import io
import json
import os
import signal
import subprocess
import sys
import time
import traceback
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from pronk.processes import session
from pronk.processes.channel import VARIABLE, Channel, ChannelClosed, inherited, pair
from pronk.processes.collecting import collect_seldom
from pronk.processes.failures import user_traceback
from pronk.processes.full_disk import NO_COMPILED_FILES, NO_ROOM
from pronk.processes.lifeline import die_with_parent
from pronk.processes.messages import Failed, Run
from pronk.types import Failure, UserError

LONGEST_CAUSE = 15_000  # characters: less than any socket's buffer, so that reporting a failure cannot block
SEND_SECONDS = 5.0
SECRETS = ("PRONK_TOKEN",)  # variables that a child gets only if it needs them: environments run code of many authors
TAIL_BYTES = 1 << 16
STACK_SECONDS = 1.0  # for a process to write its stack; a stopped one never does

_started: weakref.WeakSet[subprocess.Popen[bytes]] = weakref.WeakSet()

# Not `-m`: the parent's import path is set before anything of Pronk's or the user's is imported.
START = """
import json, sys
sys.path[:] = json.loads(sys.argv.pop())
from pronk.processes.child import main
main()
"""


def start(
    run: Run, log: Path, descriptors: Sequence[int] = (), keeps_secrets: bool = False
) -> tuple[subprocess.Popen[bytes], Channel]:
    """Start a child that runs `run.program` and writes to a log.

    Args:
        run: what to run.
        log: file to append its standard output and error to.
        descriptors: what it inherits besides its channel.
        keeps_secrets: let it have the SECRETS in this process's environment.

    Raises:
        OSError: the log cannot be opened, or the process cannot be made.
    """
    channel, theirs = pair()
    try:
        with theirs, opened_log(log) as file:
            process = subprocess.Popen(
                # Only the first life may compile modules: later the disk may be full.
                [sys.executable, "-P", *([NO_COMPILED_FILES] if run.life else []), "-c", START, json.dumps(sys.path)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                pass_fds=[*descriptors, *session.descriptors(), theirs.fileno()],
                env={**environment(keeps_secrets), **session.variables(), VARIABLE: str(theirs.fileno())},
                start_new_session=True,  # the terminal's Ctrl-C is for the parent only
            )
    except OSError:
        channel.close()
        raise
    _started.add(process)
    with contextlib.suppress(ChannelClosed):  # it is dead already, which its supervisor will notice
        channel.send(run, SEND_SECONDS)
    return process, channel


def opened_log(log: Path) -> BinaryIO:
    """Open a log for appending. On a disk that is read-only, or too full for a new file, the output goes nowhere."""
    try:
        return open(log, "ab")
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        return open(os.devnull, "ab")


class Forgiving(io.FileIO):
    """A file whose write errors are ignored: on a full disk a child loses lines of its log, not its life."""

    def write(self, data: Any, /) -> int:
        """Return how much was written; all of it if that failed."""
        try:
            return super().write(data)
        except OSError:
            return len(data)


def forgiving_output() -> None:
    """Let no `print` of this process fail, not even one of an environment."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        file = io.BufferedWriter(Forgiving(descriptor, "wb", closefd=False))
        setattr(sys, name, io.TextIOWrapper(file, "utf-8", "backslashreplace", line_buffering=name == "stderr"))


def environment(keeps_secrets: bool) -> dict[str, str]:
    """Return this process's environment for a child."""
    return {name: value for name, value in os.environ.items() if keeps_secrets or name not in SECRETS}


def main() -> None:
    """Run the program that the parent names. An exception is reported to the parent and ends the process."""
    channel = inherited()
    assert channel is not None, "started by `start`"
    run = next(iter(channel))
    assert isinstance(run, Run)
    die_with_parent(run.parent)
    forgiving_output()
    session.inherit()
    collect_seldom()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log = os.dup(2)  # a program may do something else with its standard error
    faulthandler.enable(log)
    faulthandler.register(signal.SIGUSR1, log, all_threads=False)
    print(f"{time.strftime('%F %T')} {run.name} starts (life {run.life}, pid {os.getpid()})", flush=True)
    code = 0
    try:
        importlib.import_module(run.program).main(run.job, channel)
        print(f"{time.strftime('%F %T')} {run.name} ends", flush=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except Exception as error:
        traceback.print_exc()
        code = 1
        report(channel, error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # not `exit`, which waits for threads that an environment may have left


def report(channel: Channel, error: Exception) -> None:
    """Send the cause of a failure."""
    cause = str(error) if isinstance(error, UserError | Failure) else user_traceback(error)
    with contextlib.suppress(ChannelClosed):  # the parent is gone
        channel.send(Failed(cause[-LONGEST_CAUSE:], isinstance(error, UserError)), SEND_SECONDS)


def kill(process: subprocess.Popen[bytes]) -> int:
    """End a child and all that it started, at once; return its exit code."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # its session is its own: see `start`
    return process.wait()


def kill_all() -> None:
    """End every child of this process, without waiting for it: the thread that usually does that hangs."""
    for process in list(_started):
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


def stack_of(process: subprocess.Popen[bytes], log: Path) -> str:
    """Return the stack of a child that hangs. `faulthandler` writes it to the log; a stopped process cannot."""
    try:
        before = size = log.stat().st_size
        process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + STACK_SECONDS
        while time.monotonic() < deadline:
            time.sleep(0.05)
            earlier, size = size, log.stat().st_size
            if size == earlier > before:
                break
        with open(log, "rb") as file:
            file.seek(before)
            return file.read().decode(errors="replace").strip() or "(it does not answer: is it stopped?)"
    except OSError as error:  # the log was removed
        return f"({error})"


def is_stopped(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a child is stopped (SIGSTOP, a debugger); False where the system does not tell."""
    try:
        with open(f"/proc/{process.pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except (OSError, IndexError):
        return False


def tail(log: Path, lines: int = 15) -> str:
    """Return the end of a log, or why it cannot be read."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:]) or "(nothing)"
    except OSError as error:
        return f"({error})"
