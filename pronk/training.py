"""A training run, wired. After types.py, READ THIS FIRST.

      actor x A                                                        learner (this process; of L, each has actors)
      VectorEnv --Step--> Actor --fills--> Unroll ==[ transport ]==> Batcher --batch--> Learner --> metrics, checkpoint
          ^--action-- Policy <--loads-- Parameters ==[ transport ]<== publish <--snapshot--'

  waits    an actor waits for a free slot (its own few); the learner waits for the unrolls of a batch
  lag      at most slots x actors finished unrolls wait to be learnt; a slow one adds the updates made while it was
           played; measured from Unroll.version, always logged
  stop     the learner leaves its `with`; the ports close; every actor gets `Closed` and returns
  failure  an actor's end is the end of its socket; its slots are its own, so nothing is lost, locked or half-read
  replay   with replay.size, columns that were learnt from are drawn again into later batches: see replay/
  group    several learners act as one: they add up their gradients at every update, and end together
  solved   when the return reaches its goal, the weights are held until whole episodes have confirmed it, and the
           evaluator if there is one

There is one thread. While it waits for unrolls it watches its actors, or, with transport=local, plays them itself.
(A second one does nothing but notice if the first makes no progress: processes/watchdog.py.)
On request there are more processes: one plays episodes with the checkpoints (evaluation/evaluator.py), one films them
(evaluation/filmer.py), one chooses the actions of all actors (policies/central.py).
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import torch

from pronk.actor import specs_for
from pronk.actors import ActorSetup, running_actors
from pronk.batcher import Batch, Batcher
from pronk.broken_batches import BrokenBatches, BrokenGradient
from pronk.config import Config, ResolvedConfig, recorded
from pronk.config.resolved import check_same_tasks
from pronk.envs.base import games_of
from pronk.evaluation.atari_scores import human_normalised_summary
from pronk.evaluation.evaluator import Evaluator
from pronk.evaluation.filmer import Filmer
from pronk.layout import UnrollLayout
from pronk.learner import Learner, NonFinite
from pronk.learners import GroupEnded, LearnerGroup, Shared, SingleLearner
from pronk.metrics import Metrics
from pronk.metrics.goal import Goal
from pronk.parameters import ParameterDelay
from pronk.policies.numpy_mlp import small_mlp
from pronk.processes import forced_exit
from pronk.processes.failures import user_code
from pronk.processes.interrupts import Interrupted, Interrupts
from pronk.processes.watchdog import Watchdog
from pronk.replay import Replay
from pronk.runs.checkpoint import checked_content
from pronk.runs.directory import RunDirectory
from pronk.runs.saver import CheckpointSaver, Standing
from pronk.schedules import exploration, learning_rate, progress_of
from pronk.seeding import further_learner_seed, replay_seed
from pronk.sinks import Sink
from pronk.sinks.callbacks import Callbacks, Stopped
from pronk.sinks.of_run import sinks_of_run
from pronk.transport import LearnerPort
from pronk.types import EnvSpec, Failure, Unroll

Say = Callable[[str], None]

MOST_BARREN_UPDATES = 200  # in a row without a single valid step; then the run fails


class Training:
    """One run, from its first update to its summary."""

    def __init__(
        self,
        config: ResolvedConfig,
        recorded: Config,
        run: RunDirectory,
        learner: Learner,
        resume: bool,
        say: Say,
        group: LearnerGroup | None = None,
    ) -> None:
        """`config` is this learner's; `recorded` is that of the whole run, for config.yaml and the checkpoints."""
        self.config, self._recorded, self._run, self.learner, self._say = config, recorded, run, learner, say
        self.path, self.summary = run.path, dict[str, Any]()
        self._group = group or SingleLearner()
        self._leads = self._group.rank == 0  # learner 0 writes the run directory
        self.interrupts = Interrupts(say if self._leads else lambda message: None)
        self._replay: Replay | None = None
        self.metrics = metrics_of(config, learner.spec)
        self._goal = Goal(config, self.metrics, say)
        self._broken = BrokenBatches(config, learner, self._group, run.path, say)
        self._reported: dict[str, Any] | None = None
        self._said: set[str] = set()
        self._saver = CheckpointSaver(run.checkpoints, config.checkpoint.keep, self._state, self._say_once)
        if resume:
            self._restore()
        self._saved_at = time.monotonic()

    def go(self, display: Sink | None = None, callbacks: Callbacks | None = None) -> dict[str, Any]:
        """Run to the end, and return what summary.json holds."""
        with self.interrupts:
            for _ in self.updates(display, callbacks):
                pass
        return self.summary

    def updates(self, display: Sink | None = None, callbacks: Callbacks | None = None) -> Iterator[None]:
        """Train until the run ends for any reason; yield after each update. The caller must have entered `interrupts`.

        Every end except a broken gradient leaves a checkpoint.
        """
        self._callbacks = callbacks or Callbacks()
        with self._watched() as self._watchdog:
            outcome, failure = yield from self._to_the_end(display)
            self._summarise(outcome, failure)
        if failure is not None:
            raise failure

    def _to_the_end(self, display: Sink | None) -> Generator[None, None, tuple[str, Exception | None]]:
        """Train and close everything; return the outcome and the failure."""
        failure: Exception | None = None
        updates_before, interrupts = self.metrics.updates, self.interrupts
        with contextlib.ExitStack() as stack:
            interrupts.look = self._look
            self._sinks = [stack.enter_context(sink) for sink in [*self._own_sinks(), self._callbacks]]
            self._sinks += [stack.enter_context(display)] if display else []
            self._evaluator = stack.enter_context(Evaluator(self.config, self._run, self._sinks, self._say_once))
            filmed = (self.config, self._run, self.metrics.env_steps, self._say_once, self._leads)
            self._filmer = stack.enter_context(Filmer(*filmed))
            try:
                outcome = self._outcome() or (yield from self._learn(interrupts))
            except GroupEnded as end:
                outcome, failure = end.outcome, Failure(end.message) if end.outcome == "failed" else None
            except Stopped:
                outcome = "stopped"
            except Interrupted:
                interrupts.announce()
                outcome = "interrupted"
            except NonFinite as error:
                outcome, failure = "failed", self._broken.keep(error)
            except SystemExit as error:  # raised by an environment or a sink; Pronk never calls sys.exit here
                outcome, failure = "failed", Failure(f"something called sys.exit({error.code!r}) while training")
            except Exception as error:
                outcome, failure = "failed", error
            self._group.leave(outcome, str(failure) if failure else None)
            if self.metrics.updates > updates_before or not self._saver.last:
                self._report()
                if not isinstance(failure, BrokenGradient) and (unsaved := self._save_last()):
                    outcome, failure = "failed", failure or unsaved
            if outcome in ("solved", "finished") and self._saver.last:
                self._evaluator.finish(self._saver.last, interrupts, aloud=display is not None)
                self._filmer.finish(interrupts)
        return outcome, failure

    def _look(self) -> None:
        """Raise if the run has to end for a reason other than a signal."""
        self._group.check()
        self._callbacks.check()

    def _summarise(self, outcome: str, failure: Exception | None) -> None:
        saved, cause = (str(one) if one else None for one in (self._saver.last, failure))
        self.summary = {"outcome": outcome, "run": str(self._run.path), "checkpoint": saved, **self.metrics.line()}
        self.summary |= {"evaluation": self._evaluator.last, "failure": cause}
        try:
            if self._leads:
                self._run.write_summary(self.summary)
        except OSError as error:
            self._say(f"cannot write {self._run.summary}: {error}")

    def _own_sinks(self) -> list[Sink]:
        """Return where metrics go, apart from the screen. Of several learners, only learner 0 writes any."""
        if not self._leads:
            return []
        action = self.learner.spec.action
        return sinks_of_run(self.config, self._recorded, self._run, self.metrics, action, self._say_once)

    def _learn(self, interrupts: Interrupts) -> Generator[None, None, str]:
        """Run the training loop, and return the outcome."""
        config, learner, metrics = self.config, self.learner, self.metrics
        self._synchronise(interrupts)
        specs = specs_for(config, learner.spec, learner.network.state_spec)
        mlp = small_mlp(learner.network, config.actors.envs)
        state = (learner.parameters(), mlp, self._run.logs, metrics.env_steps)
        setup = ActorSetup(config, UnrollLayout(specs), *state, interrupts, self._say)
        self._replay = self._make_replay(specs)
        with running_actors(setup) as (port, watch):
            sizes = (config.learner.batch_size, learner.device, config.learner.passes)
            batcher = Batcher(port, specs, *sizes, self._replay)
            delay = ParameterDelay(config.learner.extra_lag)
            while (outcome := self._outcome()) is None:
                interrupts.check()
                with metrics.waiting():
                    batch = batcher.next()
                self._callbacks.played(batch.arrays, batch.fresh, learner.spec.tasks)
                if self._goal.is_being_confirmed:
                    self._confirm(batch)
                else:
                    self._update(batch, meanwhile=batcher.prefetch)
                    self._publish(port, delay)
                if metrics.seconds_since_line() >= self.config.run.log_every_seconds:
                    metrics.queue = port.waiting / max(1, port.room)
                    self._report()
                    if self._leads:
                        self._saver.save_if_best(self._standing())
                    watch()
                overdue = time.monotonic() - self._saved_at >= self.config.checkpoint.every_seconds
                wanted = (self._evaluator.wants_checkpoint(), self._filmer.wants_checkpoint(metrics.env_steps))
                if any(wanted) or overdue:
                    self._save()
                self._watchdog.is_watching = False  # a `Trainer` may pause here
                yield
                self._watchdog.is_watching = True
            self._report()  # before the actors are ended, which takes a moment and is not training
        return outcome

    def _watched(self) -> Watchdog:
        """Return what acts if this learner makes no progress: signals are checked at every update and wait."""
        # The channel of a further learner cannot be used by two threads; its standard error is its log.
        report = self._say if self._leads else functools.partial(print, file=sys.stderr, flush=True)
        limits = self.config.actors.timeout_seconds, self.config.learner.timeout_seconds
        end_after = limits[1] if forced_exit.is_allowed() else None
        return Watchdog(lambda: self.interrupts.checks, limits[0], report, end_after, self._force_exit)

    def _force_exit(self, cause: str) -> None:
        """End this process, whose learner hangs. Called in another thread, so only plain data is read."""
        if not self._leads:
            forced_exit.end_to_be_restarted(cause)
        saved = self._saver.last
        resume = f"`--resume` continues from the last one{f', {saved}' if saved else ''}"
        cause += f"\nno checkpoint can be taken of a learner that hangs, perhaps in half an update; {resume}"
        forced_exit.end(cause, lambda: self._run.write_failure(cause, saved, self._reported))

    def _update(self, batch: Batch, meanwhile: Callable[[], None]) -> None:
        """Learn from a batch."""
        config, learner, metrics = self.config, self.learner, self.metrics
        metrics.progress = progress_of(config, metrics.env_steps, metrics.wall_seconds)
        rate = learning_rate(config, metrics.progress, metrics.env_steps)
        exploring = exploration(config, metrics.progress, metrics.env_steps)
        metrics.entropy_cost = learner.loss.entropy_cost = config.loss.entropy_cost * exploring
        learner.loss.barrier_cost = config.loss.barrier_cost * exploring
        metrics.count_lags(learner.version - batch.arrays.version, batch.fresh)
        if learner.replay_loss:
            learner.replay_loss.recorded = batch.recorded
        try:
            with user_code("the learner"):
                update = self._group.step(learner, batch, rate, meanwhile)
        except NonFinite as error:
            self._broken.drop(error)
            return
        self._broken.learnt()
        if update is None:
            return
        if self._replay is not None and learner.replay_loss:
            seen = [tensor.cpu().numpy() for tensor in learner.replay_loss.seen or ()]
            self._replay.record(batch.arrays, batch.fresh, batch.drawn, *seen)
            if self._replay.shortage and "replay" not in self._said:
                self._said.add("replay")  # the number of columns changes, the message should not come again
                self._say(self._replay.shortage)
        metrics.learning_rate = update.report.pop("learning_rate")
        metrics.record(update.experience, update.report)
        self._goal.look()

    def _publish(self, port: LearnerPort, delay: ParameterDelay) -> None:
        """Make the new weights available to the actors.

        Once the weights are held, actors must play exactly these, even with learner.extra_lag: only their episodes can
        confirm the goal.
        """
        if due := delay.due(self.learner.parameters(), at_once=self._goal.is_being_confirmed):
            port.publish(due)

    def _confirm(self, batch: Batch) -> None:
        """Count the episodes of a batch without learning from it: the weights are held while the goal is confirmed."""
        played = self._group.observe(self.learner, batch)
        if played is not None:
            agrees = functools.partial(self._group.decide, self._evaluation_agrees)
            # The run's setting, not this learner's: only learner 0 has an evaluator, but all must decide alike.
            self._goal.confirm(played, agrees if self._recorded.evaluation.enabled else None)

    def _evaluation_agrees(self) -> bool:
        """Have the held weights evaluated. If that fails, it was already reported, and counts as agreement."""
        saved = self._save()
        line = self._evaluator.evaluate_now(saved, self.interrupts) if saved else None
        return line is None or self._goal.agrees_with(line)

    def _synchronise(self, interrupts: Interrupts) -> None:
        """Wait for all learners, and take over learner 0's weights, optimiser and counters."""
        shared = Shared(self.learner.tensors(), self._shared_state, self._take_over)
        self._group.begin(shared, interrupts, self.metrics.waiting)

    def _shared_state(self) -> dict[str, Any]:
        return {"metrics": self.metrics.state(), "version": self.learner.version, "goal": self._goal.state()}

    def _take_over(self, state: dict[str, Any]) -> None:
        """Continue from learner 0's counters, so that all learners take the same decisions from here on."""
        learner, metrics = self.learner, self.metrics
        self._goal.take_over(state["goal"])
        # Learner 0 takes its own state as it is now: its clock has gone on while the group formed.
        metrics.take_over(metrics.state() if self._leads else state["metrics"])
        if not self._leads:
            learner.version = state["version"]
            torch.manual_seed(further_learner_seed(self.config.run.seed, self._group.rank, metrics.env_steps))

    def _make_replay(self, specs: Unroll) -> Replay | None:
        """Make the buffer of this learner: empty, or as the run that is resumed has saved it."""
        config, metrics = self.config, self.metrics
        if not config.replay.size:
            return None
        replay = Replay(specs, config, replay_seed(config.run.seed, self._group.rank, metrics.env_steps))
        if metrics.updates:
            problem = replay.load(self._replay_file, self.learner.version) if config.replay.keep else None
            if problem:
                self._say(f"replay starts empty: {self._replay_file} cannot be used ({problem})")
            elif not config.replay.keep and self._leads:
                self._say("replay starts empty: it was not saved (replay.keep=false)")
        return replay

    @property
    def _replay_file(self) -> Path:
        return self._run.checkpoints.folder / f"replay-{self._group.rank:03d}.npz"

    def _save_replay(self) -> None:
        """Write this learner's buffer beside the checkpoints. If that fails, it is reported."""
        if self._replay is None or not self.config.replay.keep:
            return
        try:
            self._replay.save(self._replay_file)
        except OSError as error:
            self._say_once(f"cannot write {self._replay_file}: {error}")

    def _outcome(self) -> str | None:
        """Return why the run is over, or None if it is not. Raises Failure if no valid steps arrive."""
        run, metrics = self.config.run, self.metrics
        if metrics.confirmed and metrics.reached(run.stop_return):
            return "solved"
        last_step = min(run.total_steps, run.pause_steps or run.total_steps)
        if metrics.env_steps >= last_step or metrics.wall_seconds >= (run.total_seconds or float("inf")):
            return "finished"
        if metrics.barren_updates >= MOST_BARREN_UPDATES:
            raise Failure(
                f"no valid step in {MOST_BARREN_UPDATES} updates: every step of the environment is truncated. Does its "
                "step limit (max_episode_steps) leave room for an episode?"
            )
        return None

    def change(self, changes: dict[str, Any]) -> None:
        """Replace settings that are read at every update, from the next one on, also in config.yaml."""
        self.config, self._recorded = self.config.replace(changes), self._recorded.replace(changes)
        self._goal.config = self.config
        self._run.write_config(self._recorded)

    def _report(self) -> None:
        """Write a line to every sink, if anything happened since the last one.

        A full disk is reported; training continues.
        """
        line = self.metrics.line()
        if line is self._reported:
            return
        self._reported = line
        for sink in self._sinks:
            try:
                sink.write(line)
            except OSError as error:
                self._say_once(f"cannot write metrics: {error}")

    def _say_once(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            self._say(message)

    def _save(self) -> Path | None:
        """Write a checkpoint, and have it evaluated or filmed if that is due. None if it was not written."""
        saved = self._saver.save(self._standing()) if self._leads else None
        if saved:
            self._evaluator.offer(saved)
            self._filmer.offer(saved)
            self._callbacks.saved(saved)
        self._save_replay()
        self._saved_at = time.monotonic()
        return saved

    def _save_last(self) -> Failure | None:
        """Write the last checkpoint. Returns a failure if it could not be written to the run directory."""
        problem = self._saver.save_last(self._standing()) if self._leads else None
        if self._leads and self._saver.last:
            self._callbacks.saved(self._saver.last)
        self._save_replay()
        return problem

    def _standing(self) -> Standing | None:
        """Return how good the policy is, to choose best.pt; None if evaluations choose it."""
        return None if self._evaluator.chooses_best else self.metrics.standing

    def _state(self) -> dict[str, Any]:
        """Return the content of a checkpoint."""
        if not self.learner.is_finite():
            raise BrokenGradient("the weights are no longer finite; the last checkpoint is kept")
        return {
            "learner": self.learner.state(),
            "metrics": self.metrics.state(),
            "config": self._recorded.model_dump(),
        }

    def _restore(self) -> None:
        """Continue from the newest checkpoint, with the configuration as it is now."""
        state = self._saver.restore()
        check_same_tasks(recorded(state["config"]), self.config)
        self.learner.load_state(state["learner"])
        with checked_content("this configuration"):
            self.metrics.load_state(state["metrics"])
        self._run.prepare_resume(self._recorded, self.metrics.updates)


def metrics_of(config: ResolvedConfig, spec: EnvSpec) -> Metrics:
    """Make the counters of a run. Several Atari games have human-normalised scores too."""
    if not config.env.tasks:
        return Metrics(spec.frames_per_step, spec.tasks)
    return Metrics(spec.frames_per_step, spec.tasks, functools.partial(human_normalised_summary, games_of(config.env)))
