"""A training run, wired. READ THIS FIRST.

      actor x A                                                        learner (this process)
      VectorEnv --Step--> Actor --fills--> Unroll ==[ transport ]==> Batcher --batch--> Learner --> metrics, checkpoint
          ^--action-- Policy <--loads-- Parameters ==[ transport ]<== publish <--snapshot--'

  waits    an actor waits for a free slot (its own few); the learner waits for the unrolls of a batch
  lag      at most slots x actors finished unrolls wait to be learnt; a slow one adds the updates made while it was
           played; measured from Unroll.version, always logged
  stop     the learner leaves its `with`; the ports close; every actor gets `Closed` and returns
  failure  an actor's end is the end of its socket; its slots are its own, so nothing is lost, locked or half-read

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

from pronk.actor import specs_for
from pronk.batcher import Batcher
from pronk.checkpoint import RunDirectory, save_atomically
from pronk.config import Config, load_config
from pronk.envs import probe_spec
from pronk.failures import own_failures, time_limit
from pronk.interrupts import Interrupted, Interrupts
from pronk.launch import Play, playing
from pronk.layout import UnrollLayout
from pronk.learner import Learner, NonFinite, choose_device
from pronk.metrics import Metrics
from pronk.optimisers import scheduled_rate
from pronk.sinks import Sink
from pronk.sinks.jsonl import JsonLines
from pronk.sinks.tensorboard import TensorBoard
from pronk.transport.security import check_gateway
from pronk.types import Failure, UserError, leaves, map_unroll

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
    config = config.resolved()
    if resume and run_dir is None:
        raise UserError("resume needs run_dir: which run should go on?")
    if run_dir is not None and not resume:
        RunDirectory.refuse_used(Path(run_dir))
    learner = learner_for(config)  # before anything is written: most mistakes in a configuration show here
    refuse_more_than_memory(config, learner)
    check_gateway(config.transport)
    if resume:
        run = RunDirectory.open(Path(str(run_dir)))
    else:
        run = RunDirectory.create(config, Path(run_dir) if run_dir else None, name or config.env.id)
    with run.locked():
        summary = Training(config, run, learner, resume, say).go(display)
    if summary["outcome"] == "interrupted":
        raise TrainingInterrupted(summary)
    return summary


def learner_for(config: Config) -> Learner:
    """A learner for the configured environment, with the configured share of the machine."""
    assert isinstance(config.learner.threads, int), "resolved"
    torch.set_num_threads(config.learner.threads)
    device = choose_device(config.learner.device)
    with own_failures("the environment"), time_limit(config.actors.timeout_seconds):
        spec = probe_spec(config)
    with own_failures("the network or the loss"):
        return Learner(config, spec, device)


class Training:
    """One run, from its first update to its summary."""

    def __init__(self, config: Config, run: RunDirectory, learner: Learner, resume: bool, say: Say) -> None:
        self._config, self._run, self._learner, self._say = config, run, learner, say
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
            sinks: list[Sink] = [
                JsonLines(self._run.metrics),
                TensorBoard(self._run.tensorboard, self._metrics.env_steps),
            ]
            self._sinks = [stack.enter_context(sink) for sink in [*sinks, *([display] if display else [])]]
            try:
                outcome = self._outcome() or self._learn(interrupts)
            except Interrupted:
                outcome = "interrupted"
            except NonFinite as error:
                outcome, failure = "failed", self._keep_broken_batch(error)
            except Exception as error:
                outcome, failure = "failed", error
            if self._metrics.updates > updates_before or not self._saved:
                self._report()
                if not isinstance(failure, BrokenGradient):
                    self._save()
        saved = str(self._saved) if self._saved else None
        summary = {"outcome": outcome, "run": str(self._run.path), "checkpoint": saved, **self._metrics.line()}
        try:
            self._run.write_summary(summary)
        except OSError as error:
            self._say(f"cannot write {self._run.summary}: {error}")
        if failure is not None:
            raise failure
        return summary

    def _learn(self, interrupts: Interrupts) -> str:
        """The loop. Gives the reason why it ended."""
        config, learner, metrics = self._config, self._learner, self._metrics
        specs = specs_for(config, learner.spec, learner.network.state_spec)
        play = Play(
            config, UnrollLayout(specs), learner.parameters(), self._run.logs, metrics.env_steps, interrupts, self._say
        )
        with playing(play) as (port, watch):
            batcher = Batcher(port, specs, config.learner.batch_size, learner.device, config.learner.passes)
            while (outcome := self._outcome()) is None:
                interrupts.check()
                with metrics.waiting():
                    batch = batcher.next()
                metrics.learning_rate = scheduled_rate(config.optimiser, metrics.env_steps / config.run.total_steps)
                with own_failures("the learner"):
                    report = learner.step(batch.tensors, metrics.learning_rate, meanwhile=batcher.prefetch)
                port.publish(learner.parameters())
                metrics.record(batch.arrays, report, learner.version - 1, batch.fresh)
                if metrics.seconds_since_line() >= config.run.log_every_seconds:
                    metrics.queue = port.waiting / max(1, port.room)
                    self._report()
                    watch()
                if time.monotonic() - self._saved_at >= config.checkpoint.every_seconds:
                    self._save()
            self._report()  # before the actors are ended, which takes a moment and is not training
        return outcome

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
        if not self._learner.is_finite():
            raise BrokenGradient("the weights are no longer finite; the last checkpoint is kept")
        standing = self._metrics.standing
        best = standing is not None and standing >= self._best
        state = {
            "learner": self._learner.state(),
            "metrics": self._metrics.state(),
            "best": standing if best else self._best,
            "config": self._config.model_dump(),
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
        self._run.go_on(self._config, self._metrics.updates)

    def _keep_broken_batch(self, error: NonFinite) -> BrokenGradient:
        path = self._run.path / "broken_batch.pt"
        batch = map_unroll(lambda tensor: tensor.cpu().clone(), error.batch)  # views of one block cannot be saved
        try:
            save_atomically(path, {"batch": batch._asdict(), "network": self._learner.state()["network"]})
            kept = f"The batch and the weights before this update are in {path}"
        except (OSError, RuntimeError) as reason:
            kept = f"The batch could not be saved ({reason})"
        suspects = [name for name, array in leaves(batch._asdict()) if not_finite(array, name)]
        where = f"the batch holds non-finite values in {', '.join(suspects)}" if suspects else "the batch is finite"
        return BrokenGradient(
            f"{error}; {where}. {kept}. A smaller optimiser.learning_rate or optimiser.max_gradient_norm often helps"
        )


def not_finite(array: torch.Tensor, name: str) -> bool:
    """Whether a float array has a NaN or an infinity where none belongs (NaN in episode_return means "none")."""
    return name != "episode_return" and array.is_floating_point() and not bool(array.isfinite().all())


def refuse_more_than_memory(config: Config, learner: Learner) -> None:
    """Say so before the machine does."""
    nbytes = UnrollLayout(specs_for(config, learner.spec, learner.network.state_spec)).nbytes
    staged = 2 * max(1, config.learner.batch_size // config.actors.envs)  # type: ignore[operator]
    nbytes *= config.actors.slots * config.actors.count + staged  # type: ignore[operator]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if nbytes > memory:
        raise UserError(
            f"the unrolls of all actors need {nbytes / 2**30:,.0f} GiB, this machine has {memory / 2**30:,.0f}: lower "
            "actors.count, actors.envs, actors.unroll_length or actors.slots"
        )
