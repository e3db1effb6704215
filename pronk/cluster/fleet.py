"""Learners and actors on many machines, as one run: starts them, brings back what died, and stops them all.

start   every attendant is called at once; learners start when all of them are there, actors when theirs listens
dead    an actor is started again, with growing pauses; if a learner was killed or its machine lost, all learners
        start again from the newest checkpoint; a learner that failed by itself ends the run with its own message
end     the run is over, or Ctrl-C: learners write their checkpoint, actors are stopped, every line is closed
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

from pronk.cluster.base import Event
from pronk.cluster.members import Member, Post, listening
from pronk.cluster.mirror import Incoming
from pronk.cluster.plan import Plan, Seat
from pronk.cluster.progress import Progress
from pronk.processes.interrupts import INTERRUPTED, Interrupted, Interrupts
from pronk.runs.directory import RunDirectory
from pronk.types import Failure, UserError

LOOK_SECONDS = 0.05
JUDGE_SECONDS = 45.0  # between the end of one learner and the question whose fault it was, if others still run
CLOCK_SECONDS = 60.0  # by which a machine that shares its disk may be behind
LAST_WORD_SECONDS = 90.0  # for learners to write a checkpoint
GOODBYE_SECONDS = 8.0  # for actors
MOST_LEARNER_FAILURES = 5  # in a row
MOST_ACTOR_FAILURES = 6  # in a row, of every actor
GOOD_CODES, MISTAKE_CODE = (0, INTERRUPTED), 2

More = Callable[[int], list[Post]]
"""From the number of actors to posts for further ones: machines may join."""


class Fleet:
    """One run on many machines."""

    def __init__(
        self,
        plan: Plan,
        run: Path,
        learners: list[Post],
        actors: list[Post],
        progress: Progress,
        more: More | None = None,
    ) -> None:
        self._plan, self._progress, self._more = plan, progress, more or (lambda count: [])
        self._run = RunDirectory(run)
        self._learners = [Member("learner", rank, post) for rank, post in enumerate(learners)]
        self._actors = [Member("actor", index, post) for index, post in enumerate(actors)]
        self._addresses: dict[int, str] = {}  # of learners that listen
        self._incoming: Incoming | None = None
        self._unwritten: list[tuple[Member, str]] = []  # lines from before there was a folder for them
        self._ended_at: float | None = None  # when the first learner did
        self._stack = contextlib.ExitStack()

    def go(self) -> dict[str, Any]:
        """To the end; gives what the run's summary holds."""
        began = time.time()
        with self._stack, Interrupts() as interrupts:
            try:
                while not self._over():
                    interrupts.check()
                    self._advance()
                    time.sleep(LOOK_SECONDS)
            except Interrupted:
                self._progress.say("stopping: the learners write a checkpoint; Ctrl-C again leaves at once")
                self._stop(self._learners, LAST_WORD_SECONDS)
            finally:
                self._stop(self._actors, GOODBYE_SECONDS)
                with ThreadPoolExecutor(32) as pool:  # one that does not answer takes its time
                    list(pool.map(Member.drop, [*self._actors, *self._learners]))
                self._write_logs()
        return self._summary(began, interrupts.requested)

    def _advance(self) -> None:
        for post in self._more(len(self._actors)):
            self._actors.append(Member("actor", len(self._actors), post))
        for member in [*self._learners, *self._actors]:
            member.connect_if_due()
            self._hear(member)
        self._start_learners()
        for actor in self._actors:
            self._look_after(actor)
        self._judge_learners()
        self._progress.look(self._learners, self._actors)

    def _hear(self, member: Member) -> None:
        for event in member.news():
            if "line" in event:
                self._line(member, event["line"])
            elif "file" in event or "gone" in event:
                assert self._incoming is not None
                try:
                    self._incoming.take(event)
                except OSError as error:
                    raise Failure(f"cannot write the copy of the run in {self._run.path}: {error.strerror}") from None
            elif "started" in event and member is self._learners[0]:
                self._has_run_directory(event)

    def _has_run_directory(self, event: Event) -> None:
        """Where machines share their disks, the learner's directory is ours; else ours is a copy."""
        if event["shared"] or self._incoming:
            return
        self._run.path.mkdir(parents=True, exist_ok=True)
        self._incoming = Incoming(self._run.path)
        self._stack.enter_context(self._run.locked())

    def _line(self, member: Member, line: str) -> None:
        self._unwritten.append((member, line))
        told = listening(line) if member is self._learners[0] else None
        if told:
            learner, port = self._learners[told[0]], told[1]
            self._addresses[learner.index] = f"{learner.host}:{port}"
            self._progress.say(f"{learner.title} listens on {self._addresses[learner.index]}")
        if self._addresses:
            self._write_logs()

    def _write_logs(self) -> None:
        """logs/hosts/NAME.log, once the run directory is there."""
        if not self._run.path.is_dir():
            return
        folder = self._run.logs / "hosts"
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            for member, line in self._unwritten:
                with open(folder / f"{member.name}.log", "a", encoding="utf-8", errors="replace") as file:
                    file.write(line + "\n")
        self._unwritten.clear()

    def _start_learners(self) -> None:
        if not all(member.state == "here" for member in self._learners):
            return
        hosts = [member.host for member in self._learners]
        seats = [
            Seat(
                member.host,
                member.here["free_port"],
                member.here["cores"],
                sum(actor.place == member.place for actor in self._actors),
                hosts[:rank].count(member.host),
                hosts.count(member.host),
                member.post.devices,
            )
            for rank, member in enumerate(self._learners)
        ]
        for rank, member in enumerate(self._learners):
            member.start(self._plan.learner(rank, seats, again=member.lives > 0))

    def _look_after(self, actor: Member) -> None:
        if actor.state == "here":
            address = self._addresses.get(actor.index % len(self._learners))
            if address:
                actor.start(self._plan.actor(address, actor.post.devices))
        elif actor.state == "ended" and actor.code != 0 and not actor.mistaken:
            if actor.code == MISTAKE_CODE:
                actor.mistaken = True
                self._progress.say(f"{actor.title} cannot take part: {actor.why}")
                if all(one.mistaken for one in self._actors):
                    raise UserError(f"no actor can take part; {actor.title}: {actor.why}")
            else:
                pause = actor.come_back()
                brief = actor.why.splitlines()[-1]
                self._progress.say(f"{actor.title} ended ({brief}); it starts again in {pause:.0f} s")
                if all(one.failures >= MOST_ACTOR_FAILURES or one.mistaken for one in self._actors):
                    raise Failure(f"no actor can play; {actor.title}: {actor.why}")

    def _judge_learners(self) -> None:
        """One that ended has a reason; the others may have ended because of it."""
        ended = [member for member in self._learners if member.state == "ended" and member.code not in GOOD_CODES]
        if not ended:
            return
        self._ended_at = self._ended_at or time.monotonic()
        if (
            any(member.state == "started" for member in self._learners)
            and time.monotonic() - self._ended_at < JUDGE_SECONDS
        ):
            return
        self._ended_at = None
        killed = next((member for member in ended if member.code is None or member.code < 0), None)
        if killed is None:
            self._fail(ended[0])
        never_there = killed.lives == 0 and killed.code is None
        if never_there or killed.failures + 1 >= MOST_LEARNER_FAILURES:
            raise Failure(f"{killed.title}: {killed.why}")
        self._addresses.clear()
        for member in self._learners:
            member.come_back()
        for actor in self._actors:
            if actor.state == "started":  # its learner will listen elsewhere
                actor.come_back()
        self._progress.say(f"{killed.title} ended ({killed.why}); the learners start again from the newest checkpoint")

    def _fail(self, learner: Member) -> NoReturn:
        word, _, message = learner.why.partition(": ")
        end = "\n".join(learner.last_lines)
        if learner.code == MISTAKE_CODE and word == "error":
            raise UserError(f"{learner.title}: {message}")
        raise Failure(f"{learner.title}: {message}" if word == "failed" else f"{learner.title} ended; its log:\n{end}")

    def _over(self) -> bool:
        """All learners have reached the end, or were interrupted where they are."""
        return all(member.state == "ended" and member.code in GOOD_CODES for member in self._learners)

    def _stop(self, members: list[Member], seconds: float) -> None:
        """Ask them to end, and hear them out. A second Ctrl-C ends this process, and so the others'."""
        for member in members:
            member.stop()
        deadline = time.monotonic() + seconds
        while any(member.state == "started" for member in members) and time.monotonic() < deadline:
            for member in [*self._learners, *self._actors]:
                self._hear(member)
            time.sleep(LOOK_SECONDS)

    def _summary(self, began: float, interrupted: bool) -> dict[str, Any]:
        try:
            if self._run.summary.stat().st_mtime < began - CLOCK_SECONDS:
                raise ValueError("of an earlier part of the run")
            return {**json.loads(self._run.summary.read_text()), "run": str(self._run.path)}
        except (OSError, ValueError):
            if interrupted:
                raise KeyboardInterrupt from None  # before there was anything to sum up
            raise Failure(f"the run ended before there was anything to sum up; logs: {self._run.logs}") from None
