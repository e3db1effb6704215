"""A training run, wired. READ THIS FIRST.

      actor x A                                                        learner (this process; of L, each has actors)
      VectorEnv --Step--> Actor --fills--> Unroll ==[ transport ]==> Batcher --batch--> Learner --> metrics, checkpoint
          ^--action-- Policy <--loads-- Parameters ==[ transport ]<== publish <--snapshot--'

  waits    an actor waits for a free slot (its own few); the learner waits for the unrolls of a batch
  lag      at most slots x actors finished unrolls wait to be learnt; a slow one adds the updates made while it was
           played; measured from Unroll.version, always logged
  stop     the learner leaves its `with`; the ports close; every actor gets `Closed` and returns
  failure  an actor's end is the end of its socket; its slots are its own, so nothing is lost, locked or half-read
  group    several learners are one: they meet at every update, add up their gradients, and end together

One thread. While it waits for unrolls it looks after its actors, or, with transport=local, plays them itself.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pronk import plain_yaml
from pronk.actor import specs_for
from pronk.batcher import Batcher
from pronk.broken_batch import keep_broken_batch
from pronk.checkpoint import RunDirectory
from pronk.config import Config, load_config, validate
from pronk.envs import probe_spec
from pronk.failures import own_failures, time_limit
from pronk.interrupts import Interrupted, Interrupts
from pronk.launch import Play, playing
from pronk.layout import UnrollLayout
from pronk.learner import Learner, NonFinite, choose_device
from pronk.learners import (
    Group,
    Left,
    Place,
    Share,
    Solo,
    find_place,
    following,
    leading,
    part_of,
    whole_run,
)
from pronk.metrics import Metrics
from pronk.optimisers import scheduled_rate
from pronk.seeding import further_learner_seed
from pronk.sinks import Sink
from pronk.sinks.jsonl import JsonLines
from pronk.sinks.tensorboard import TensorBoard
from pronk.types import Failure, UserError

Say = Callable[[str], None]

MOST_BARREN_UPDATES = 200  # in a row without a single valid step, after which the run cannot be getting anywhere


class BrokenGradient(Failure):
    """A loss or gradient was not finite. No checkpoint is written after it."""


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM, raised when everything is saved and closed."""

    def __init__(self, summary: dict[str, Any]) -> None:
        super().__init__(f"interrupted; the run is in {summary['run']}")
        self.summary = summary


def train(
    config: Config | str | Path,
    *,
    run_dir: str | Path | None = None,
    name: str | None = None,
    resume: bool = False,
    display: Sink | None = None,
    say: Say = print,
) -> dict[str, Any]:
    """Train until `run.total_steps` or `run.stop_return`, and give back what `summary.json` holds.

    `config` may name a preset or a YAML file. Without `run_dir` a new one is made, runs/NAME-DATE-TIME. `display` is
    one more sink for the metrics; `say` gets warnings. Ctrl-C writes a checkpoint and raises `TrainingInterrupted`.
    """
    if not isinstance(config, Config):
        config = load_config(config)
    place = find_place(config.learners)
    if place.rank > 0:
        return follow(place, say)
    part, whole = part_of(config, place), whole_run(config, place)
    if resume and run_dir is None:
        raise UserError("resume needs run_dir: which run should go on?")
    if run_dir is not None and not resume:
        RunDirectory.refuse_used(Path(run_dir))
    learner = learner_for(part, place)  # before anything is written: most mistakes in a configuration show here
    refuse_more_than_memory(part, learner, place.count_here)
    with leading(place, config.loss.reduction, say) as group:
        if resume:
            run = RunDirectory.open(Path(str(run_dir)))
        else:
            run = RunDirectory.create(whole, Path(run_dir) if run_dir else None, name or config.env.id)
        with run.locked():
            training = Training(part, run, learner, resume, say, group, whole)
            group.invite({"config": whole.to_yaml(), "run": str(run.path)}, run.logs)
            return concluded(training.go(display))


def follow(place: Place, say: Say) -> dict[str, Any]:
    """Be another learner than 0, which says what to learn, logs, and writes the checkpoints."""
    try:
        with following(place, say) as (group, welcome):
            config = part_of(validate(plain_yaml.parse(welcome["config"])), place)
            run = RunDirectory(Path(welcome["run"]))
            run.logs /= f"learner-{place.rank:03d}"
            run.logs.mkdir(parents=True, exist_ok=True)
            learner = learner_for(config, place)
            return concluded(Training(config, run, learner, False, group.say, group).go(None))
    except Left as left:  # before there was anything to do
        if left.outcome == "failed":
            raise Failure(left.message) from None
        return concluded({"outcome": left.outcome, "run": ""})


def concluded(summary: dict[str, Any]) -> dict[str, Any]:
    """An interrupt is raised where training was called."""
    if summary["outcome"] == "interrupted":
        raise TrainingInterrupted(summary)
    return summary


def learner_for(config: Config, place: Place | None = None) -> Learner:
    """A learner for the configured environment, with the configured share of the machine."""
    assert isinstance(config.learner.threads, int), "resolved"
    torch.set_num_threads(config.learner.threads)
    device = choose_device(config.learner.device, place.rank_here if place else 0)
    with own_failures("the environment"), time_limit(config.actors.timeout_seconds):
        spec = probe_spec(config)
    with own_failures("the network or the loss"):
        return Learner(config, spec, device)


class Training:
    """One run, from its first update to its summary."""

    def __init__(
        self,
        config: Config,
        run: RunDirectory,
        learner: Learner,
        resume: bool,
        say: Say,
        group: Group | None = None,
        whole: Config | None = None,
    ) -> None:
        """`config` is this learner's part of the `whole` run's, which is what gets written down."""
        self._config, self._run, self._learner, self._say = config, run, learner, say
        self._group, self._whole = group or Solo(), whole or config
        self._leads = self._group.rank == 0  # who writes
        self._broken: tuple[int, ...] = ()  # learners whose gradient was not a number
        self._metrics = Metrics(learner.spec.frames_per_step)
        self._best = (False, -float("inf"))  # whether over 100 episodes, and their mean return
        self._reported: dict[str, Any] | None = None
        self._saved: Path | None = None
        self._said: set[str] = set()
        if resume:
            self._restore()
        self._saved_at = time.monotonic()

    def go(self, display: Sink | None) -> dict[str, Any]:
        """Run to the end, whatever the end is. All ends but a broken gradient leave a checkpoint."""
        failure: Exception | None = None
        updates_before = self._metrics.updates
        with contextlib.ExitStack() as stack:
            interrupts = stack.enter_context(Interrupts())
            interrupts.look = self._group.look
            sinks: list[Sink] = []
            if self._leads:
                sinks = [JsonLines(self._run.metrics), TensorBoard(self._run.tensorboard, self._metrics.env_steps)]
            self._sinks = [stack.enter_context(sink) for sink in [*sinks, *([display] if display else [])]]
            try:
                outcome = self._outcome() or self._learn(interrupts)
            except Left as left:
                outcome, failure = left.outcome, Failure(left.message) if left.outcome == "failed" else None
            except Interrupted:
                outcome = "interrupted"
            except NonFinite as error:
                outcome, failure = "failed", self._keep_broken_batch(error)
            except Exception as error:
                outcome, failure = "failed", error
            self._group.leave(outcome, str(failure) if failure else None)
            if self._metrics.updates > updates_before or not self._saved:
                self._report()
                if not isinstance(failure, BrokenGradient):
                    self._save()
        saved = str(self._saved) if self._saved else None
        summary = {"outcome": outcome, "run": str(self._run.path), "checkpoint": saved, **self._metrics.line()}
        try:
            if self._leads:
                self._run.write_summary(summary)
        except OSError as error:
            self._say(f"cannot write {self._run.summary}: {error}")
        if failure is not None:
            raise failure
        return summary

    def _learn(self, interrupts: Interrupts) -> str:
        """The loop. Gives the reason why it ended."""
        config, learner, metrics, group = self._config, self._learner, self._metrics, self._group
        self._begin_as_one(interrupts)
        specs = specs_for(config, learner.spec, learner.network.state_spec)
        play = Play(
            config, UnrollLayout(specs), learner.parameters(), self._run.logs, metrics.env_steps, interrupts, self._say
        )
        with playing(play) as (port, watch):
            batcher = Batcher(port, specs, config.columns, learner.device, config.learner.passes)
            while (outcome := self._outcome()) is None:
                interrupts.check()
                with metrics.waiting():
                    batch = batcher.next()
                metrics.learning_rate = scheduled_rate(config.optimiser, metrics.env_steps / config.run.total_steps)
                with own_failures("the learner"):
                    report = learner.gradient(batch.tensors, meanwhile=batcher.prefetch)
                share = Share.of(batch.arrays, report, learner.version, batch.fresh)
                with metrics.waiting():
                    whole = group.meet(share, interrupts)
                self._broken = whole.broken
                report = group.add_up(learner.gradients, share, whole)
                learner.update(report, metrics.learning_rate, batch.tensors)
                port.publish(learner.parameters())
                metrics.record(whole.experience, report)
                if metrics.seconds_since_line() >= config.run.log_every_seconds:
                    metrics.queue = port.waiting / (config.actors.slots * config.actors.count)  # type: ignore[operator]
                    self._report()
                    watch()
                if time.monotonic() - self._saved_at >= config.checkpoint.every_seconds:
                    self._save()
            self._report()  # before the actors are ended, which takes a moment and is not training
        return outcome

    def _begin_as_one(self, interrupts: Interrupts) -> None:
        """Where learner 0 is: its weights, its optimiser, its counters."""
        learner, metrics = self._learner, self._metrics
        mine = {"metrics": metrics.state(), "version": learner.version}
        state = self._group.begin(mine, learner.tensors(), interrupts)
        if not self._leads:
            metrics.load_state(state["metrics"])
            learner.version = state["version"]
            torch.manual_seed(further_learner_seed(self._config.run.seed, self._group.rank, metrics.env_steps))

    def _outcome(self) -> str | None:
        """Why the run is at its end, or None."""
        run, metrics = self._config.run, self._metrics
        if metrics.reached(run.stop_return):
            return "solved"
        if metrics.env_steps >= run.total_steps or metrics.wall_seconds >= (run.total_seconds or float("inf")):
            return "finished"
        if metrics.barren_updates >= MOST_BARREN_UPDATES:
            raise Failure(
                f"no valid step in {MOST_BARREN_UPDATES} updates: every step of the environment is truncated. Does its "
                "step limit (max_episode_steps) leave room for an episode?"
            )
        return None

    def _report(self) -> None:
        """A line to every sink, if anything happened since the last one. A full disk is said, not died of."""
        line = self._metrics.line()
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

    def _save(self) -> None:
        """A checkpoint; the last one stays if this one cannot be written."""
        if not self._leads:
            return
        if not self._learner.is_finite():
            raise BrokenGradient("the weights are no longer finite; the last checkpoint is kept")
        standing = self._metrics.standing
        best = standing is not None and standing >= self._best
        state = {
            "learner": self._learner.state(),
            "metrics": self._metrics.state(),
            "best": standing if best else self._best,
            "config": self._whole.model_dump(),
        }
        try:
            self._saved = self._run.save(state, self._config.checkpoint.keep, best)
            self._best = standing if standing is not None and best else self._best
        except (OSError, RuntimeError) as error:
            self._saved = None
            self._say(f"cannot write a checkpoint: {error}; the last one is kept")
        self._saved_at = time.monotonic()

    def _restore(self) -> None:
        """Go on from the newest checkpoint, with the configuration as it is now."""
        state, problems = self._run.restore()
        for path, problem in problems.items():
            path.rename(path.with_suffix(".broken"))  # it would count as the newest
            self._say(f"{problem}; set aside, going back to the one before it")
        self._learner.load_state(state["learner"])
        self._metrics.load_state(state["metrics"])
        self._best = tuple(state["best"])
        self._saved = self._run.saved()[-1]
        self._run.go_on(self._whole, self._metrics.updates)

    def _keep_broken_batch(self, error: NonFinite) -> BrokenGradient:
        rank = self._group.rank
        if self._broken and rank not in self._broken:
            others = ", ".join(map(str, self._broken))
            return BrokenGradient(f"{error}, in learner {others}, whose log says more; no weights were touched")
        path = self._run.path / (f"broken_batch-learner-{rank:03d}.pt" if rank else "broken_batch.pt")
        kept = keep_broken_batch(error.batch, self._learner.state()["network"], path)
        return BrokenGradient(
            f"{error}; {kept}. A smaller optimiser.learning_rate or optimiser.max_gradient_norm often helps"
        )


def refuse_more_than_memory(config: Config, learner: Learner, learners: int = 1) -> None:
    """Say so before the machine does."""
    nbytes = UnrollLayout(specs_for(config, learner.spec, learner.network.state_spec)).nbytes
    staged = 2 * max(1, config.columns // config.actors.envs)  # type: ignore[operator]
    nbytes *= (config.actors.slots * config.actors.count + staged) * learners  # type: ignore[operator]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if nbytes > memory:
        raise UserError(
            f"the unrolls of all actors need {nbytes / 2**30:,.0f} GiB, this machine has {memory / 2**30:,.0f}: lower "
            "actors.count, actors.envs, actors.unroll_length or actors.slots"
        )
