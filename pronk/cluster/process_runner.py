"""What runs on another machine beside each process: starts it, forwards what it reports and writes, and ends it."""

from __future__ import annotations

import contextlib
import itertools
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from pronk.cluster.directory_sync import DirectorySender
from pronk.config import available_cores
from pronk.processes import child, reporting
from pronk.processes.channel import VARIABLE, Channel, ChannelClosed, pair
from pronk.processes.interrupts import INTERRUPTED
from pronk.processes.lifeline import die_with_parent
from pronk.processes.messages import Exited, Message, Output, RunCommand, RunnerReady, Started, Stop
from pronk.runs.reading import is_locked

FILES, FILES_VARIABLE = "{files}", "PRONK_FILES"
"""In a command's arguments, and in its environment: the private folder that holds its files."""
POLL_SECONDS = 0.05
SYNC_SECONDS = 1.0  # between two scans of the run directory
FILES_AT_ONCE = 8  # file messages per call, so that other messages need not wait long
LOCK_SECONDS = 90.0  # for a learner whose connection was lost to write its checkpoint and end
SILENCE_SECONDS = 45.0  # without a message from the launching machine: it is gone, even if TCP has not noticed
GRACE_SECONDS = 30.0  # for a process to write a checkpoint
START = "from pronk.cluster.process_runner import run_pronk; run_pronk({})"


class ProcessRunner:
    """Runs one `pronk` command. Not thread-safe; `messages` has to be called often."""

    def __init__(self, folder: str) -> None:
        """Work in this folder if it exists on this machine, else in the home directory."""
        path = Path(folder).expanduser()
        self._folder = path if path.is_dir() else Path.home()
        self._waiting: tuple[RunCommand, float] | None = None  # for the run directory's lock, until when
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._output = b""  # an unfinished line
        self._files: Path | None = None
        self._sync: DirectorySender | None = None
        self._changes: Iterator[Message] = iter(())
        self._synced_at = 0.0
        self._code: int | None = None
        self.ended = False

    def ready(self) -> RunnerReady:
        """Return what the launching machine needs to know of this one."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            return RunnerReady(free_port=probe.getsockname()[1], cores=available_cores())

    def run(self, command: RunCommand) -> None:
        """Start the process at the next call of `messages`, or once no earlier learner locks its run directory."""
        self._waiting = command, time.monotonic() + LOCK_SECONDS

    def messages(self) -> list[Message]:
        """Return what has happened since the last call, but not too many file changes at once. `Exited` comes last."""
        if self._waiting is not None:
            return self._start_if_unlocked(*self._waiting)
        if self._process is None or self.ended:
            return self._exit_without_start()
        if self._code is None:
            self._code = self._process.poll()  # before the last output is read, so that none is missed
            self._synced_at = self._synced_at if self._code is None else 0.0
        messages = [*self._read_output(), *self._read_channel()]
        changes = list(itertools.islice(self._changes, FILES_AT_ONCE))
        messages += changes
        if len(changes) == FILES_AT_ONCE:
            return messages
        if self._sync is not None and time.monotonic() - self._synced_at > SYNC_SECONDS:
            self._synced_at = time.monotonic()
            self._changes = self._sync.changes()
            self._sync = self._sync if self._code is None else None  # the scan after the end is the last
        elif self._code is not None:
            messages.append(Exited(self._code))
            self._clean_up()
        return messages

    def stop(self) -> None:
        """Ask the process to save its work and end, as Ctrl-C does."""
        if self._waiting is not None:
            self._waiting, self._code = None, INTERRUPTED
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def end(self, grace_seconds: float) -> None:
        """End the process. It has `grace_seconds` to write a checkpoint, then it is killed."""
        self.stop()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_seconds)
            child.kill(self._process)
        self._clean_up()

    def _exit_without_start(self) -> list[Message]:
        if self.ended or self._code is None:
            return []
        self._clean_up()
        return [Exited(self._code)]

    def _start_if_unlocked(self, command: RunCommand, deadline: float) -> list[Message]:
        run = self._folder / command.run if command.run else None
        arguments = command.arguments
        if run and command.resume_arguments is not None:
            if run.is_dir() and is_locked(run) and time.monotonic() < deadline:
                return []
            if any(run.glob("checkpoints/*.pt")):
                arguments = command.resume_arguments
            else:  # the earlier process ended before its first checkpoint: start again, in an empty directory
                shutil.rmtree(run, ignore_errors=True)
        self._waiting = None
        shared = bool(command.marker) and (self._folder / str(command.marker)).exists()
        self._sync = DirectorySender(run) if run and not shared else None
        self._files = Path(tempfile.mkdtemp(prefix="pronk-"))  # only this user can read it
        for name, text in command.files.items():
            (self._files / name).write_text(text)
        self._start([argument.replace(FILES, str(self._files)) for argument in arguments], command.environment)
        return [Started(shared)]

    def _start(self, arguments: list[str], environment: dict[str, str]) -> None:
        self._channel, theirs = pair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", START.format(os.getpid()), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env={
                    **os.environ,
                    **environment,
                    FILES_VARIABLE: str(self._files),
                    VARIABLE: str(theirs.fileno()),
                    "PYTHONUNBUFFERED": "1",
                },
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def _read_output(self) -> list[Message]:
        assert self._process is not None
        assert self._process.stdout is not None
        # Read what there is, not until the end of the pipe: a grandchild that is left behind may hold it open.
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._process.stdout.fileno(), 1 << 16):
                self._output += chunk
        *lines, self._output = self._output.split(b"\n")
        if self._code is not None and self._output:
            lines, self._output = [*lines, self._output], b""
        return [Output(line.decode(errors="replace")) for line in lines]

    def _read_channel(self) -> list[Message]:
        try:
            return self._channel.receive() if self._channel else []
        except ChannelClosed:
            return []

    def _clean_up(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
        if self._files:
            shutil.rmtree(self._files, ignore_errors=True)
        self.ended = True


def run_pronk(parent: int) -> None:
    """Run the command of `sys.argv`, as the child of a process runner."""
    die_with_parent(parent)
    reporting.connect()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent ignores it, and children inherit that
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})  # Ray blocks them in its workers
    runpy.run_module("pronk", run_name="__main__")


def serve_stdio() -> None:
    """Run one process for the machine at the other end of standard input and output: `ssh HOST pronk runner`.

    Ends when the process has ended. Ends the process when the connection is closed or silent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    channel = Channel(os.dup(0), os.dup(1))
    os.dup2(2, 1)  # what libraries print must not get between the messages
    runner = ProcessRunner(os.getcwd())
    received_at = time.monotonic()
    with contextlib.suppress(ChannelClosed), contextlib.ExitStack() as stack:
        stack.callback(runner.end, GRACE_SECONDS)
        channel.send(runner.ready())
        while not runner.ended and time.monotonic() - received_at < SILENCE_SECONDS:
            for message in channel.receive(POLL_SECONDS):
                received_at = time.monotonic()
                if isinstance(message, RunCommand):
                    runner.run(message)
                elif isinstance(message, Stop):
                    runner.stop()
            if channel.is_flushed:  # else the connection is slower than the process writes
                for message in runner.messages():
                    channel.send(message)
        channel.flush(GRACE_SECONDS)
