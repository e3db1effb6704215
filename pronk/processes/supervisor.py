"""A child process that is kept alive: started, listened to, restarted when it dies or hangs, and ended.

    parent                                             child (`child.main` runs `main(job, channel)` of a module)
    SupervisedProcess --Run(program, job), ...-->      |
        poll()        <--Alive, Failed, Listening, ... |
        |- dead or silent: the cause (reported failure, exit code and end of the log, stack of a hang)
        '- RestartPolicy: restart after a pause, or raise `ProcessFailed` with the cause

There is no thread: the parent calls `poll` or `Supervisor.watch` often. A child ends with its parent (`lifeline.py`).
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pronk.processes import child, logs
from pronk.processes.channel import Channel, ChannelClosed
from pronk.processes.messages import Alive, Failed, Message, Run
from pronk.processes.restarts import (
    USUAL,
    End,
    RestartPolicy,
    Restarts,
    describe_exit,
    end_by_exit,
    end_by_failure,
    last_line,
)
from pronk.types import Failure, UserError

WATCH_SECONDS = 0.1  # polling costs a few system calls per child
LOG_SECONDS = 1.0  # between two checks of the size of a log


class ProcessFailed(Failure):
    """A child failed and is not restarted. The message names it and has the root cause."""

    def __init__(self, name: str, end: End, times: int) -> None:
        in_a_row = f" {times} times in a row" if times > 1 else ""
        super().__init__(f"{name} failed{in_a_row}: {end.cause}")
        self.brief = f"{name} failed{in_a_row} ({end.brief})"
        """One line."""


@dataclass(frozen=True)
class Start:
    """What one life of a child is given."""

    job: dict[str, Any]
    descriptors: Sequence[int] = ()
    """File descriptors that it inherits."""
    inherited: AbstractContextManager[Any] = field(default_factory=nullcontext)
    """Left when the child is started: closes this process's copies of the descriptors."""


@dataclass(frozen=True)
class Child:
    """What a supervisor needs to know of a child."""

    name: str
    """What users call it, such as `actor 3`."""
    program: str
    """A module with `main(job, channel)`."""
    log: Path
    prepare: Callable[[int], Start]
    """Called with the number of lives before, for each start."""
    policy: RestartPolicy = USUAL
    progress: Callable[[], int] = lambda: 0
    """Counts work that is done; a life in which it grew made progress."""
    timeout_seconds: float = math.inf
    silent_seconds: Callable[[], float] = lambda: 0.0
    """How long the child has done nothing although it could: more than the timeout is a hang."""
    silence: str = "no sign of life"
    """What a hang is called in messages, such as `no unroll`."""
    timeout_key: str | None = "actors.timeout_seconds"
    """The setting that the timeout comes from; None if it is not a setting."""
    errors_are_final: Callable[[], bool] = lambda: False
    """Whether an exception of the child ends it for good."""
    keeps_secrets: bool = False
    """Whether it needs the token in this process's environment."""
    others_work: Callable[[], bool] = lambda: False
    """Whether the run goes on without this child. Kills from outside then never end it, however many there are."""


class SupervisedProcess:
    """One child over all its lives."""

    def __init__(self, spec: Child, say: Callable[[str], None]) -> None:
        """`say` gets a line for the user at every restart."""
        self.spec, self._say = spec, say
        self.lives = 0
        self.process: subprocess.Popen[bytes] | None = None
        """None between two lives."""
        self.last_message_at = 0.0
        """Time of the last message, or of the start if there was none."""
        self.has_reported = False
        """Whether any message came in this life: on a busy machine a start may take long."""
        self._channel: Channel | None = None
        self._restarts = Restarts(spec.policy)
        self._reported: Failed | None = None
        self._last_end: End | None = None  # of the life before
        self._started_at = self._due = self._log_checked_at = 0.0
        self._progress_before = 0

    @property
    def progressed(self) -> bool:
        """Whether this life has done any work."""
        return self.spec.progress() > self._progress_before

    def silent_seconds(self, start_seconds: float) -> float:
        """Return the seconds since the last message. Of a start, only those beyond `start_seconds` count."""
        silent = time.monotonic() - self.last_message_at
        return silent if self.has_reported else silent - start_seconds

    def start(self) -> None:
        """Start a new life."""
        spec = self.spec
        self._progress_before = spec.progress()
        self._reported = None
        start = spec.prepare(self.lives)
        run = Run(spec.name, spec.program, start.job, self.lives, os.getpid())
        self.lives += 1
        self.has_reported = False
        self._started_at = self.last_message_at = time.monotonic()
        try:
            with start.inherited:
                self.process, self._channel = child.start(run, spec.log, start.descriptors, spec.keeps_secrets)
        except OSError as error:  # of a full disk or process table
            self._judge(End(str(error), str(error)))

    def send(self, message: Message) -> None:
        """Send a message. A dead child does not get it; `poll` will notice."""
        if self._channel is not None:
            with contextlib.suppress(ChannelClosed):
                self._channel.send(message)

    def poll(self) -> list[Message]:
        """Return the messages since the last call; restart the child if it is time to.

        Raises:
            ProcessFailed: the child failed, and is not restarted any more.
            UserError: it failed because of a mistake in the user's input.
        """
        if self.process is None:
            if time.monotonic() >= self._due:
                self.start()
            return []
        if time.monotonic() >= self._log_checked_at + LOG_SECONDS:
            self._log_checked_at = time.monotonic()
            logs.bound(self.spec.log)
        code = self.process.poll()  # before its messages are read, so that no last one is missed
        messages = self._receive()
        if messages:
            return messages  # the caller handles these first; the next call reports how the child ended
        if self._reported is not None:
            self._end(end_by_failure(self._reported))
        elif code is not None:
            self._end(end_by_exit(code, child.tail(self.spec.log)))
        elif self.spec.silent_seconds() > self.spec.timeout_seconds:
            self._end(self._hang(self.process))
        return []

    def how_it_ended(self, seconds: float = 1.0) -> str:
        """Return in one line how the process ended, after waiting up to `seconds` for its end."""
        if self.process is None:
            return self._last_end.brief if self._last_end else "it was not started"
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return "it still runs"
        self._receive()
        return last_line(self._reported.cause) if self._reported else describe_exit(code)

    def stop(self, deadline: float = 0.0) -> None:
        """Close the channel, and end the child if it has not ended by itself at the deadline (monotonic time)."""
        self.close_channel()
        if self.process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, deadline - time.monotonic()))
        child.kill(self.process)
        self.process = None

    def close_channel(self) -> None:
        """Ask the child to end: it finds its channel closed when it next waits for a message."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _receive(self) -> list[Message]:
        try:
            messages = self._channel.receive() if self._channel else []
        except ChannelClosed:  # it ends, or is dead
            return []
        if messages:
            self.last_message_at, self.has_reported = time.monotonic(), True
        self._reported = next((one for one in messages if isinstance(one, Failed)), self._reported)
        return [one for one in messages if not isinstance(one, Alive | Failed)]

    def _hang(self, process: subprocess.Popen[bytes]) -> End:
        spec = self.spec
        key = f" ({spec.timeout_key})" if spec.timeout_key else ""
        brief = f"{spec.silence} for {spec.timeout_seconds:g} s{key}"
        if child.is_stopped(process):
            stopped = f"{brief}: it is stopped (SIGSTOP)"
            return End(stopped, stopped, is_fault=False)
        return End(f"{brief}; it was here:\n{child.stack_of(process, spec.log)}", brief)

    def _end(self, end: End) -> None:
        self.stop()  # also kills whatever it started, and a process that hangs after it reported its failure
        self._judge(end)

    def _judge(self, end: End) -> None:
        """Schedule the restart, or raise the root cause."""
        self._last_end = end
        if end.is_mistake:
            raise UserError(end.cause)
        pause = self._restarts.pause_after(end.is_fault, time.monotonic() - self._started_at, self.progressed)
        if pause is None and not end.is_fault and self.spec.others_work():
            pause = self.spec.policy.last_pause
        if pause is None or (end.raised and self.spec.errors_are_final()):
            raise ProcessFailed(self.spec.name, end, max(self._restarts.failures, self._restarts.kills))
        self._due = time.monotonic() + pause
        self._say(f"{self.spec.name} failed ({end.brief}); restarting it. Its log: {self.spec.log}")


class Supervisor:
    """Several children that are watched and ended together."""

    def __init__(self, children: Sequence[SupervisedProcess], grace_seconds: float) -> None:
        """`grace_seconds`: for all of them to end by themselves when their channels are closed."""
        self.children, self._grace = children, grace_seconds
        self._watched_at = -math.inf

    def stop(self) -> None:
        """Ask every child to end, and kill those that have not ended within the grace."""
        deadline = time.monotonic() + self._grace
        for one in self.children:
            one.close_channel()
        for one in self.children:
            one.stop(deadline)

    def start(self) -> None:
        """Start every child."""
        for one in self.children:
            one.start()

    def watch(self) -> bool:
        """Poll every child, at most once in WATCH_SECONDS. Return whether they were polled.

        Raises what `SupervisedProcess.poll` raises.
        """
        if time.monotonic() - self._watched_at < WATCH_SECONDS:
            return False
        self._watched_at = time.monotonic()
        for one in self.children:
            one.poll()
        return True
