"""One run whose learners and actors are on other machines.

start     all connections are opened at once; learners start when all their machines are ready, an actor when its
          learner listens
restart   an actor: after a growing pause
          a learner other than 0 that was killed, or whose machine is lost: likewise; the others continue meanwhile
          learner 0 that was killed, or whose machine is lost: all learners restart from the newest checkpoint
          a learner that failed by itself is not restarted: it ends the run with its own message
end       the run is finished, or Ctrl-C: learners write their checkpoint, actors are stopped, all connections closed
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pronk.cluster.base import Placement
from pronk.cluster.credentials import make_credentials
from pronk.cluster.directory_sync import DirectoryReceiver
from pronk.cluster.plan import LearnerHost, Plan
from pronk.cluster.progress import Progress
from pronk.cluster.remote_worker import RemoteWorker, State
from pronk.config import Config
from pronk.processes.interrupts import Interrupted, Interrupts
from pronk.processes.messages import FileChunk, FileRemoved, FilesPresent, Listening, Message, Output, Started
from pronk.processes.restarts import RestartPolicy
from pronk.runs.directory import RunDirectory, claim
from pronk.runs.reading import read_json, stamp
from pronk.sinks import Sink
from pronk.transport.security import is_loopback
from pronk.types import Failure, UserError

POLL_SECONDS = 0.05
ROOT_CAUSE_SECONDS = 45.0  # to wait for the other learners to end after the first one did, to find the root cause
CLOCK_SECONDS = 60.0  # by which the clock of a machine that shares its disk may be behind
CHECKPOINT_SECONDS = 90.0  # for learners to write their last checkpoint
STOP_SECONDS = 8.0  # for actors to end
LEARNER_POLICY = RestartPolicy(max_failures=1, max_kills=5, first_pause=1.0, last_pause=30.0, growth=2.0)
ACTOR_POLICY = RestartPolicy(max_failures=None, max_kills=None, first_pause=1.0, last_pause=30.0, growth=2.0)
MAX_ACTOR_ENDS = 6  # in a row; when all actors have reached it, the run ends

MoreActors = Callable[[int], list[Placement]]
"""From the number of actors to placements of further ones: machines may join a cluster."""


def train_on_cluster(
    config: Config,
    learners: list[Placement],
    actors: list[Placement],
    *,
    run_dir: Path | None,
    name: str,
    resume: bool,
    display: Sink | None,
    say: Callable[[str], None],
    more_actors: MoreActors = lambda count: [],
) -> dict[str, Any]:
    """Train on the given machines, and return what `summary.json` holds.

    Raises:
        UserError: a mistake in the configuration, also if only a learner on its machine found it.
        Failure: a learner failed, or no actor can play.
    """
    refuse_unreachable(learners, actors)
    credentials = make_credentials()
    if run_dir is None or not resume:
        run_dir = claim(run_dir, name)
    with marked(run_dir) as marker, display or contextlib.nullcontext():
        plan = Plan(config, credentials, str(run_dir), str(marker), resume)
        progress = Progress(run_dir / "metrics.jsonl", display, say)
        return ClusterRun(plan, run_dir, learners, actors, progress, more_actors).run()


def refuse_unreachable(learners: list[Placement], actors: list[Placement]) -> None:
    """Raise UserError if a learner is called localhost, which is another machine for the others."""
    hosts = [one.host for one in [*learners, *actors] if one.host]
    local = [one.host for one in learners if one.host and is_loopback(one.host)]
    if local and not all(map(is_loopback, hosts)):
        raise UserError(
            f"a learner on {local[0]} cannot be reached from other machines; use the name by which they reach it"
        )


@contextlib.contextmanager
def marked(run: Path) -> Iterator[Path]:
    """Put a file beside the run directory: a machine that sees it has the same disk."""
    marker = run.with_name(f".{run.name}.{secrets.token_hex(8)}")
    marker.touch()
    try:
        yield marker
    finally:
        marker.unlink(missing_ok=True)


class ClusterRun:
    """Starts, watches, restarts and stops all processes of a run."""

    def __init__(
        self,
        plan: Plan,
        run: Path,
        learners: list[Placement],
        actors: list[Placement],
        progress: Progress,
        more_actors: MoreActors,
    ) -> None:
        self._plan, self._progress, self._more_actors = plan, progress, more_actors
        self._run = RunDirectory(run)
        self._learners = [RemoteWorker("learner", rank, one, LEARNER_POLICY) for rank, one in enumerate(learners)]
        self._actors: list[RemoteWorker] = []
        self._add_actors(actors)
        self._receiver: DirectoryReceiver | None = None
        self._unwritten: list[tuple[str, str]] = []  # output from before there was a folder for it
        self._first_end: float | None = None  # when the first learner ended
        self._hosts: list[LearnerHost] = []  # of the learners, as they were started together
        self._stack = contextlib.ExitStack()

    def run(self) -> dict[str, Any]:
        """Run to the end, and return the run's summary."""
        began = time.time()
        with self._stack, Interrupts() as interrupts:
            try:
                while not self._finished():
                    interrupts.check()
                    self._advance()
                    time.sleep(POLL_SECONDS)
            except Interrupted:
                self._progress.say("stopping: the learners write a checkpoint; press Ctrl-C again to skip it")
                self._stop(self._learners, CHECKPOINT_SECONDS)
            finally:
                self._stop(self._actors, STOP_SECONDS)
                with ThreadPoolExecutor(32) as pool:  # closing waits for machines that do not answer
                    list(pool.map(RemoteWorker.close, [*self._actors, *self._learners]))
                self._write_logs()
        return self._summary(began, interrupts.requested)

    def _add_actors(self, placements: list[Placement]) -> None:
        for one in placements:
            self._actors.append(RemoteWorker("actor", len(self._actors), one, ACTOR_POLICY))

    def _advance(self) -> None:
        self._add_actors(self._more_actors(len(self._actors)))
        for worker in [*self._learners, *self._actors]:
            worker.connect_if_due()
            self._poll(worker)
        if all(learner.state is State.READY for learner in self._learners):
            self._start_learners()
        for learner in self._learners[1:]:  # restarted: learner 0 still listens where it did when all were started
            if learner.state is State.READY and self._learners[0].is_running:
                learner.run(self._plan.learner(learner.index, self._hosts, restart=True))
        for actor in self._actors:
            if actor.state is State.READY:
                self._start_actor(actor)
            elif actor.state is State.ENDED and actor.end is not None:
                self._restart_actor(actor)
        self._check_learners()
        self._progress.show(self._learners, self._actors)

    def _poll(self, worker: RemoteWorker) -> None:
        for message in worker.poll():
            self._handle(worker, message)

    def _handle(self, worker: RemoteWorker, message: Message) -> None:
        match message:
            case Output(line):
                self._unwritten.append((worker.name, line))
            case Listening():
                self._progress.say(f"{worker.title} listens on {worker.address}")
            case Started(shared=False) if worker is self._learners[0]:
                self._copy_run_directory()
            case FileChunk() | FileRemoved() | FilesPresent() if self._receiver is not None:
                try:
                    self._receiver.apply(message)
                except OSError as error:
                    raise Failure(f"cannot write the copy of the run in {self._run.path}: {error.strerror}") from None
        if any(learner.address for learner in self._learners):
            self._write_logs()

    def _copy_run_directory(self) -> None:
        """Prepare for a copy: learner 0 has the run directory on a disk of its own."""
        if self._receiver is None:
            self._run.path.mkdir(parents=True, exist_ok=True)
            self._receiver = DirectoryReceiver(self._run.path)
            self._stack.enter_context(self._run.locked())

    def _write_logs(self) -> None:
        """Append the output of every process to logs/hosts/NAME.log, once there is a run directory."""
        if not self._run.path.is_dir():
            return
        folder = self._run.logs / "hosts"
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            for name, line in self._unwritten:
                with open(folder / f"{name}.log", "a", encoding="utf-8", errors="replace") as file:
                    file.write(line + "\n")
        self._unwritten.clear()

    def _start_learners(self) -> None:
        names = [learner.host for learner in self._learners]
        hosts = []
        for rank, learner in enumerate(self._learners):
            assert learner.ready is not None
            hosts.append(
                LearnerHost(
                    learner.host,
                    learner.ready.free_port,
                    learner.ready.cores,
                    sum(actor.label == learner.label for actor in self._actors),
                    names[:rank].count(learner.host),
                    names.count(learner.host),
                    learner.placement.devices,
                )
            )
        self._hosts = hosts
        for rank, learner in enumerate(self._learners):
            learner.run(self._plan.learner(rank, hosts, restart=learner.lives > 0))

    def _start_actor(self, actor: RemoteWorker) -> None:
        address = self._learners[actor.index % len(self._learners)].address
        if address is not None:
            actor.run(self._plan.actor(address, actor.placement.devices))

    def _restart_actor(self, actor: RemoteWorker) -> None:
        assert actor.end is not None
        title, end = actor.title, actor.end
        if end.is_mistake:
            actor.close()
            actor.state = State.DISABLED
            self._progress.say(f"{title} cannot take part: {end.cause}")
        else:
            pause = actor.pause_after_end()
            assert pause is not None, "the policy has no limit"
            actor.restart_in(pause)
            self._progress.say(f"{title} ended ({end.brief}); restarting it in {pause:.0f} s")
        if all(one.state is State.DISABLED for one in self._actors):
            raise UserError(f"no actor can take part; {title}: {end.cause}")
        if all(one.state is State.DISABLED or one.ends_in_a_row >= MAX_ACTOR_ENDS for one in self._actors):
            raise Failure(f"no actor can play; {title}: {end.cause}")

    def _check_learners(self) -> None:
        """If a learner failed, restart it, or all of them, or raise the root cause."""
        failed = [one for one in self._learners if one.end is not None]
        first = self._learners[0]
        if not failed or has_finished(first):
            return
        if first.is_running:
            for one in [one for one in failed if one.end and not one.end.is_fault]:
                self._restart_learner(one)
                failed.remove(one)
            if not failed:
                return
        # Wait for the other learners before judging: they may end because of this one, or it may have ended because of
        # one that has not reported yet.
        self._first_end = self._first_end or time.monotonic()
        if any(one.is_running for one in self._learners) and time.monotonic() - self._first_end < ROOT_CAUSE_SECONDS:
            return
        self._first_end = None
        cause = next((one for one in failed if one.end and not one.end.is_fault), failed[0])
        title, end = cause.title, cause.end
        assert end is not None
        if end.is_mistake:
            raise UserError(f"{title}: {end.cause}")
        if first.is_running:  # it only lost its connection: a failure of its own would have ended learner 0, too
            for one in failed:
                self._restart_learner(one)
            return
        pause = pause_before_restart(cause)
        for worker in [*self._learners, *self._actors]:
            if worker.role == "learner" or worker.is_running:  # its learner will listen on another port
                worker.restart_in(pause)
        self._progress.say(f"{title} ended ({end.brief}); restarting the learners from the newest checkpoint")

    def _restart_learner(self, learner: RemoteWorker) -> None:
        """Restart one learner, and its actors, while learner 0 trains on."""
        assert learner.end is not None
        title, brief, pause = learner.title, learner.end.brief, pause_before_restart(learner)
        for actor in self._actors:
            if actor.index % len(self._learners) == learner.index and actor.is_running:  # it will listen elsewhere
                actor.restart_in(pause)
        learner.restart_in(pause)
        self._progress.say(f"{title} ended ({brief}); training continues without it, restarting it in {pause:.0f} s")

    def _finished(self) -> bool:
        """Whether learner 0 ended as it should: at the end of the run, or interrupted. The others end with it."""
        if not has_finished(self._learners[0]):
            return False
        self._first_end = self._first_end or time.monotonic()
        still_running = any(one.is_running for one in self._learners)
        return not still_running or time.monotonic() - self._first_end > ROOT_CAUSE_SECONDS

    def _stop(self, workers: list[RemoteWorker], seconds: float) -> None:
        """Ask workers to end, and wait. A second Ctrl-C ends this process, and with it their connections."""
        for worker in workers:
            worker.stop()
        deadline = time.monotonic() + seconds
        while any(worker.is_running for worker in workers) and time.monotonic() < deadline:
            for worker in [*self._learners, *self._actors]:
                self._poll(worker)
            time.sleep(POLL_SECONDS)

    def _summary(self, began: float, interrupted: bool) -> dict[str, Any]:
        written = stamp(self._run.summary)[2] / 1e9
        if written >= began - CLOCK_SECONDS and (summary := read_json(self._run.summary)):  # not of an earlier session
            return {**summary, "run": str(self._run.path)}
        if interrupted:
            raise KeyboardInterrupt  # before anything was trained
        raise Failure(f"the run ended without a summary; see the logs in {self._run.logs}")


def has_finished(learner: RemoteWorker) -> bool:
    """Return whether a learner has ended as it should."""
    return learner.state is State.ENDED and learner.end is None


def pause_before_restart(learner: RemoteWorker) -> float:
    """Return the seconds before a learner is restarted. Raises `Failure` with its cause if that would not help."""
    assert learner.end is not None
    unreachable = learner.lives == 0 and learner.code is None
    pause = None if unreachable else learner.pause_after_end()
    if pause is None:
        raise Failure(f"{learner.title}: {learner.end.cause}")
    return pause
