"""Runs the members of a sweep, several at a time, each as a `pronk train` of its own.

waiting -> running -> finished | solved | failed | interrupted | pruned

A member that was killed from outside is restarted from its checkpoint; one that failed by itself stays failed, and the
others go on. Ctrl-C lets all of them save. What has happened is in sweep.json at any time, and the rest is in the run
directories, so a sweep can be continued after `kill -9`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pronk.cluster.directory_sync import DirectoryReceiver
from pronk.cluster.process_runner import FILES
from pronk.cluster.remote_worker import RemoteWorker
from pronk.cluster.remote_worker import State as WorkerState
from pronk.config import override
from pronk.processes.interrupts import INTERRUPTED, Interrupted, Interrupts
from pronk.processes.messages import FileChunk, FileRemoved, FilesPresent, Message, Output, RunCommand, Started
from pronk.processes.restarts import RestartPolicy
from pronk.runs import json_lines
from pronk.runs.directory import RunDirectory
from pronk.runs.reading import Run, is_number, number
from pronk.runs.trust import code_to_train
from pronk.sweeps.capacity import Capacity
from pronk.sweeps.expand import Member
from pronk.types import UserError

POLL_SECONDS = 0.05
SHOW_SECONDS = 0.5
CHECKPOINT_SECONDS = 90.0  # for members to write their last checkpoint
POLICY = RestartPolicy(max_failures=1, max_kills=4, first_pause=1.0, last_pause=30.0, growth=3.0)
COMPLETE = ("finished", "solved", "pruned")
ENDED = (*COMPLETE, "failed", "interrupted")
CONFIG = "config.yaml"


@dataclass
class Record:
    """A member and its present state."""

    member: Member
    path: Path
    """Its run directory."""
    state: str = "waiting"
    cause: str | None = None
    """Why it failed."""
    value: float | None = None
    """Of the sweep's metric, the newest."""
    steps: int = 0
    from_steps: int = 0
    """Steps that were made in earlier rounds, if it trains in rounds."""
    seconds: float = 0.0
    """Of training, over all resumes."""
    began: float = 0.0
    """When it was last started (monotonic time)."""
    lasted: float | None = None
    """Seconds from its last start to its end."""
    worker: RemoteWorker | None = field(default=None, repr=False)
    pruned: bool = False
    """Whether it was asked to end because it fell behind."""
    receiver: DirectoryReceiver | None = field(default=None, repr=False)
    """Writes the copy of the run directory, if another machine has it."""

    @property
    def log(self) -> Path:
        """What it printed."""
        return self.path.parent / "logs" / f"{self.member.name}.log"

    @property
    def fraction(self) -> float:
        """How much of its steps or seconds is done."""
        run = self.member.config.run
        steps = (run.pause_steps or run.total_steps) - self.from_steps
        done = max((self.steps - self.from_steps) / max(1, steps), self.seconds / (run.total_seconds or float("inf")))
        return 1.0 if self.state in ENDED else min(1.0, max(0.0, done))

    def look(self, metric: str) -> None:
        """Read its progress and its newest value from the run directory."""
        last = json_lines.last(self.path / "metrics.jsonl") or {}
        self.steps, self.seconds = int(number(last.get("env_steps"))), float(number(last.get("wall_seconds")))
        if metric == "evaluation":
            value = (json_lines.last(self.path / "eval.jsonl") or {}).get("mean")
        else:
            value = last.get(metric)
        self.value = float(value) if value is not None and is_number(value) else None


class Proposals(Protocol):
    """A search: proposes settings, and learns how good they were."""

    def propose(self) -> list[Member]:
        """Return the members of the next trial; empty: all trials are made."""
        ...

    def falls_behind(self, trial: int, fraction: float, value: float) -> bool:
        """Take an intermediate value, and return whether to end the trial early."""
        ...

    def conclude(self, trial: int, value: float | None, pruned: bool) -> None:
        """Take the final value; None: there is none, because its members failed."""
        ...


class SweepRun:
    """Starts, watches and ends the members."""

    def __init__(
        self,
        folder: Path,
        records: list[Record],
        capacity: Capacity,
        metric: str,
        *,
        marker: Path,
        proposals: Proposals | None,
        show: Callable[[Sequence[Record]], None],
        changed: Callable[[Record | None], None],
        say: Callable[[str], None],
    ) -> None:
        """`changed` is called when a member's state has changed, `show` about twice a second."""
        self._folder, self.records, self._capacity, self._metric = folder, records, capacity, metric
        self._marker, self._proposals = marker, proposals
        self._show, self._changed, self._say = show, changed, say
        self._stack = contextlib.ExitStack()
        self._shown_at = 0.0
        self._concluded: set[int] = set()

    def run(self) -> bool:
        """Run all members that wait. Return False if the user interrupted it."""
        with self._stack, Interrupts() as interrupts:
            try:
                while self._advance():
                    interrupts.check()
                    time.sleep(POLL_SECONDS)
            except Interrupted:
                self._say("stopping: the members write a checkpoint; press Ctrl-C again to skip it")
                self._stop()
                return False
            finally:
                with ThreadPoolExecutor(32) as pool:  # closing waits for processes that do not answer
                    list(pool.map(close, self.records))
        return True

    @property
    def _active(self) -> list[Record]:
        return [record for record in self.records if record.worker is not None]

    def _advance(self) -> bool:
        """Start, poll and conclude members. Return whether there is anything left to do."""
        while len(self._active) < self._capacity.at_a_time and (record := self._next()) is not None:
            self._start(record)
        for record in self._active:
            self._poll(record)
        if time.monotonic() - self._shown_at >= SHOW_SECONDS:
            self._shown_at = time.monotonic()
            for record in self._active:
                record.look(self._metric)
            self._prune()
            self._show(self.records)
        return bool(self._active) or self._next() is not None  # a search may have more, although all have ended

    def _next(self) -> Record | None:
        waiting = (record for record in self.records if record.state == "waiting")
        if (record := next(waiting, None)) is not None or self._proposals is None:
            return record
        self.records += [Record(member, self._folder / member.name) for member in self._proposals.propose()]
        return next((record for record in self.records if record.state == "waiting"), None)

    def _start(self, record: Record) -> None:
        record.worker = RemoteWorker("member", self.records.index(record), self._capacity.placement, POLICY)
        record.state, record.cause, record.began = "running", None, time.monotonic()
        self._changed(record)

    def _poll(self, record: Record) -> None:
        worker = record.worker
        assert worker is not None
        worker.connect_if_due()
        for message in worker.poll():
            self._handle(record, message)
        if worker.state is WorkerState.READY:
            worker.run(self._command(record))
        elif worker.state is WorkerState.ENDED:
            self._conclude(record, worker)

    def _command(self, record: Record) -> RunCommand:
        run = str(record.path)
        config = self._capacity.config_for(record.member.config)
        return RunCommand(
            ["train", f"{FILES}/{CONFIG}", "--run-dir", run],
            files={CONFIG: config.to_yaml()},
            run=run,
            marker=str(self._marker),
            # Used if there is a checkpoint.
            resume_arguments=["train", run, "--resume", *trust_in(record), *record.member.resumes_with],
        )

    def _handle(self, record: Record, message: Message) -> None:
        match message:
            case Output(line):
                with contextlib.suppress(OSError):
                    record.log.parent.mkdir(exist_ok=True)
                    with open(record.log, "a", encoding="utf-8", errors="replace") as file:
                        file.write(line + "\n")
            case Started(shared=False) if record.member.needs_shared_disk:
                raise UserError(
                    "members of a population copy one another's checkpoints: all machines must see the directory "
                    f"{self._folder}"
                )
            case Started(shared=False) if record.receiver is None:
                record.path.mkdir(parents=True, exist_ok=True)
                record.receiver = DirectoryReceiver(record.path)
                self._stack.enter_context(RunDirectory(record.path).locked())
            case FileChunk() | FileRemoved() | FilesPresent() if record.receiver is not None:
                with contextlib.suppress(OSError):  # a full disk here; the member itself goes on
                    record.receiver.apply(message)

    def _conclude(self, record: Record, worker: RemoteWorker) -> None:
        """Find out how a member ended, and restart it if it was killed."""
        if worker.end is not None and not record.pruned:
            pause = None if worker.end.is_mistake else worker.pause_after_end()
            if pause is not None:
                self._say(f"{record.member.name} ended ({worker.end.brief}); restarting it. Its log: {record.log}")
                worker.restart_in(pause)
                return
            record.state, record.cause = "failed", worker.end.cause
        elif record.pruned:
            record.state = "pruned"
        elif worker.code == INTERRUPTED:
            record.state = "interrupted"
        else:
            outcome = Run(record.path).summary.get("outcome")
            record.state = outcome if outcome in ENDED else "finished"
        self._end(record)

    def _end(self, record: Record) -> None:
        close(record)
        record.lasted = time.monotonic() - record.began
        record.look(self._metric)
        self._changed(record)
        self._tell(record.member.trial)

    def _tell(self, trial: int | None) -> None:
        """Report a trial to the search, if all its members have ended."""
        if trial is None or self._proposals is None or trial in self._concluded:
            return
        records = [record for record in self.records if record.member.trial == trial]
        if any(record.state not in (*COMPLETE, "failed") for record in records):
            return
        self._concluded.add(trial)
        values = [record.value for record in records if record.state in COMPLETE and record.value is not None]
        pruned = any(record.state == "pruned" for record in records)
        self._proposals.conclude(trial, sum(values) / len(values) if values else None, pruned)

    def _prune(self) -> None:
        """Stop the members of trials that the search has given up."""
        if self._proposals is None:
            return
        for trial in {record.member.trial for record in self._active} - {None}:
            records = [record for record in self.records if record.member.trial == trial and record.state != "failed"]
            values = [record.value for record in records if record.value is not None]
            fraction = min((record.fraction for record in records), default=0.0)
            if len(values) < len(records) or any(record.pruned for record in records):
                continue
            assert trial is not None
            if self._proposals.falls_behind(trial, fraction, sum(values) / len(values)):
                for record in records:
                    if record.worker is not None:
                        record.pruned = True
                        record.worker.stop()

    def _stop(self) -> None:
        """Let every member save its work. A second Ctrl-C ends this process, and with it all members."""
        for record in self._active:
            assert record.worker is not None
            record.worker.stop()
        deadline = time.monotonic() + CHECKPOINT_SECONDS
        while time.monotonic() < deadline and any(running(record) for record in self._active):
            for record in self._active:
                assert record.worker is not None
                for message in record.worker.poll():
                    self._handle(record, message)
            time.sleep(POLL_SECONDS)
        for record in self._active:
            outcome = Run(record.path).summary.get("outcome")
            record.state = outcome if outcome in ("finished", "solved") else "interrupted"
            record.look(self._metric)
        self._changed(None)


def running(record: Record) -> bool:
    """Whether its process was started and has not ended."""
    return record.worker is not None and record.worker.is_running


def close(record: Record) -> None:
    """End the connection to a member's process, and the process if it still runs."""
    if record.worker is not None:
        record.worker.close()
        record.worker = None


def time_left(records: Sequence[Record], at_a_time: int, expected: int) -> float | None:
    """Estimate the seconds until all members have ended; None: not known yet.

    Args:
        records: those known so far.
        at_a_time: how many run at the same time.
        expected: how many there will be, with those that a search has not proposed yet.
    """
    now = time.monotonic()
    ended = [record.lasted for record in records if record.state in COMPLETE and record.lasted]
    active = [record for record in records if record.state == "running" and record.fraction]
    begun = [(now - record.began) / record.fraction for record in active]
    if not (ended or begun):
        return None
    each = sum(ended or begun) / len(ended or begun)
    left = sum(1.0 - record.fraction for record in records) + max(0, expected - len(records))
    return each * left / at_a_time


def trust_in(record: Record) -> list[str]:
    """Return the option that lets a member resume with its sweep's code where the account does not know that code.

    Without it, if the member's directory names any other code: then `pronk train` checks that this account knows it.
    """
    try:
        resumed = override(RunDirectory(record.path).load_config(), record.member.resumes_with)
    except UserError:  # not begun yet, or not here
        return []
    own = {code.digest() for code in code_to_train(record.member.config)}
    found = {code.digest() for code in code_to_train(resumed)}
    return ["--trust"] if found and found <= own else []


def as_json(record: Record, folder: Path) -> dict[str, Any]:
    """Return a member's entry in sweep.json."""
    member = record.member
    return {
        "name": member.name,
        "run": str(record.path.relative_to(folder)),
        "settings": member.settings,
        "seed": member.seed,
        "trial": member.trial,
        "state": record.state,
        "value": record.value,
        "env_steps": record.steps,
        "wall_seconds": record.seconds,
        "cause": record.cause,
    }
