"""A training run, wired. READ THIS FIRST.

      actor x A                                                        learner (this process)
      VectorEnv --Step--> Actor --fills--> Unroll ==[ transport ]==> Batcher --batch--> Learner --> metrics, checkpoint
          ^--action-- Policy <--loads-- Parameters ==[ transport ]<== publish <--snapshot--'

  waits    an actor waits for a free slot (its own few); the learner waits for the unrolls of a batch
  lag      at most (slots x actors x updates per unroll) + 1 updates, by construction; measured from Unroll.version
  stop     the learner leaves its `with`; the ports close; every actor gets `Closed` and returns
  failure  an actor's end is the end of its socket; its slots are its own, so nothing is lost, locked or half-read

One thread. While it waits for unrolls it looks after its actors, or, with transport=local, plays them itself.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from pronk.actor import make_actor, specs_for
from pronk.batcher import Batcher
from pronk.checkpoint import RunDirectory, new_run_path, save_atomically
from pronk.config import Config, load_config
from pronk.envs import probe_spec
from pronk.failures import own_failures
from pronk.interrupts import Interrupted, Interrupts
from pronk.launch.local import LocalLauncher
from pronk.layout import UnrollLayout
from pronk.learner import Learner, NonFinite, choose_device
from pronk.metrics import Metrics
from pronk.optimisers import scheduled_rate
from pronk.sinks import Sink
from pronk.sinks.jsonl import JsonLines
from pronk.sinks.tensorboard import TensorBoard
from pronk.transport import LearnerPort
from pronk.transport.local import LocalTransport
from pronk.transport.shared_memory import SharedMemoryTransport
from pronk.types import Failure, Unroll, UserError, leaves, map_unroll

Say = Callable[[str], None]


class BrokenGradient(Failure):
    """A loss or gradient was not finite. No checkpoint is written after it."""


def train(
    config: Config | str | Path,
    *,
    run_dir: str | Path | None = None,
    resume: bool = False,
    display: Sink | None = None,
    say: Say = print,
) -> dict[str, Any]:
    """Train until `run.total_steps` or `run.stop_return`, and give back what `summary.json` holds.

    `config` may name a preset or a YAML file. `display` is one more sink for the metrics; `say` gets warnings.
    """
    if not isinstance(config, Config):
        config = load_config(config)
    config = config.resolved()
    if resume:
        if run_dir is None:
            raise UserError("--resume needs --run-dir: which run should go on?")
        run = RunDirectory.open(Path(run_dir))
        return Training(config, run, learner_for(config), resume, say).go(display)
    path = Path(run_dir) if run_dir else new_run_path(config.env.id)
    RunDirectory.refuse_used(path)
    learner = learner_for(config)  # before anything is written: most mistakes in a configuration show here
    return Training(config, RunDirectory.create(path, config), learner, resume, say).go(display)


def learner_for(config: Config) -> Learner:
    """A learner for the configured environment, with the configured share of the machine."""
    assert isinstance(config.learner.threads, int), "resolved"
    torch.set_num_threads(config.learner.threads)
    device = choose_device(config.learner.device)
    with own_failures("the environment"):
        spec = probe_spec(config)
    with own_failures("the network"):
        return Learner(config, spec, device)


class Training:
    """One run, from its first update to its summary."""

    def __init__(self, config: Config, run: RunDirectory, learner: Learner, resume: bool, say: Say) -> None:
        self._config, self._run, self._learner, self._say = config, run, learner, say
        self._metrics = Metrics(learner.spec.frames_per_step)
        self._best_return = -float("inf")
        self._reported: dict[str, Any] | None = None
        if resume:
            self._restore()
        self._saved_at = time.monotonic()

    def go(self, display: Sink | None) -> dict[str, Any]:
        """Run to the end, whatever the end is. All ends but a broken gradient leave a checkpoint."""
        failure: Exception | None = None
        with contextlib.ExitStack() as stack:
            interrupts = stack.enter_context(Interrupts())
            sinks: list[Sink] = [
                JsonLines(self._run.metrics),
                TensorBoard(self._run.tensorboard, self._metrics.env_steps),
            ]
            self._sinks = [stack.enter_context(sink) for sink in [*sinks, *([display] if display else [])]]
            try:
                outcome = self._learn(interrupts)
            except Interrupted:
                outcome = "interrupted"
            except NonFinite as error:
                outcome, failure = "failed", self._keep_broken_batch(error)
            except Failure as error:
                outcome, failure = "failed", error
            self._report()
            if not isinstance(failure, BrokenGradient):
                self._save()
        summary = {"outcome": outcome, "run": str(self._run.path), **self._metrics.last}
        self._run.write_summary(summary)
        if failure is not None:
            raise failure
        return summary

    def _learn(self, interrupts: Interrupts) -> str:
        """The loop. Gives the reason why it ended."""
        config, learner, metrics = self._config, self._learner, self._metrics
        specs = specs_for(config, learner.spec, learner.network.state_spec)
        budget = config.run.total_seconds or float("inf")
        with playing(config, learner, specs, self._run, metrics.env_steps, interrupts, self._say) as (port, watch):
            batcher = Batcher(port, specs, config.learner.batch_size, learner.device)
            while metrics.env_steps < config.run.total_steps and metrics.wall_seconds < budget:
                interrupts.check()
                with metrics.waiting():
                    batch = batcher.next()
                metrics.learning_rate = scheduled_rate(config.optimiser, metrics.env_steps / config.run.total_steps)
                with own_failures("the learner"):
                    report = learner.step(batch.tensors, metrics.learning_rate, meanwhile=batcher.prefetch)
                port.publish(learner.parameters())
                metrics.record(batch.arrays, report, learner.version - 1)
                if metrics.reached(config.run.stop_return):
                    return "solved"
                if metrics.seconds_since_line() >= config.run.log_every_seconds:
                    metrics.queue = port.waiting / (config.actors.slots * config.actors.count)  # type: ignore[operator]
                    self._report()
                    watch()
                if time.monotonic() - self._saved_at >= config.checkpoint.every_seconds:
                    self._save()
        return "finished"

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
                self._say(f"cannot write metrics: {error}")

    def _save(self) -> None:
        """A checkpoint; the last one stays if this one cannot be written."""
        score = self._metrics.episode_return
        best = score is not None and score >= self._best_return
        best_return = score if score is not None and best else self._best_return
        state = {
            "learner": self._learner.state(),
            "metrics": self._metrics.state(),
            "best_return": best_return,
            "config": self._config.model_dump(),
        }
        try:
            self._run.save(state, self._config.checkpoint.keep, best)
        except (OSError, RuntimeError) as error:
            self._say(f"cannot write a checkpoint: {error}; training goes on, the last one is kept")
        else:
            self._best_return = best_return
        self._saved_at = time.monotonic()

    def _restore(self) -> None:
        state, problems = self._run.restore()
        for path, problem in problems.items():
            path.rename(path.with_suffix(".broken"))  # it would count as the newest
            self._say(f"{problem}; set aside, going back to the one before it")
        self._learner.load_state(state["learner"])
        self._metrics.load_state(state["metrics"])
        self._best_return = state["best_return"]
        self._run.forget_metrics_after(self._metrics.updates)

    def _keep_broken_batch(self, error: NonFinite) -> BrokenGradient:
        path = self._run.path / "broken_batch.pt"
        batch = map_unroll(torch.clone, error.batch)  # one block of mixed types cannot be saved as it is
        save_atomically(path, {"batch": batch._asdict(), "network": self._learner.state()["network"]})
        suspects = [name for name, array in leaves(error.batch._asdict()) if not_finite(array, name)]
        where = f"the batch holds non-finite values in {', '.join(suspects)}" if suspects else "the batch is finite"
        return BrokenGradient(
            f"{error}; {where}. The weights before this update are in the last checkpoint; the batch is in {path}. "
            "A smaller optimiser.learning_rate or optimiser.max_gradient_norm often helps"
        )


@contextlib.contextmanager
def playing(
    config: Config,
    learner: Learner,
    specs: Unroll,
    run: RunDirectory,
    generation: int,
    interrupts: Interrupts,
    say: Say,
) -> Iterator[tuple[LearnerPort, Callable[[], None]]]:
    """Actors at play: gives the port to them, and a function that looks after them."""
    assert isinstance(config.actors.count, int), "resolved"
    layout = UnrollLayout(specs)
    refuse_more_than_memory(layout.nbytes * config.actors.slots * config.actors.count)
    if config.transport.name == "local":
        local = LocalTransport(layout)
        local.publish(learner.parameters())
        with contextlib.ExitStack() as stack:
            with own_failures("actor 0"):
                actors = [
                    stack.enter_context(make_actor(config, lambda *_: local, index, 0, generation))
                    for index in range(config.actors.count)
                ]
            turns = itertools.cycle(enumerate(actors))

            def let_one_play() -> None:
                index, actor = next(turns)
                with own_failures(f"actor {index}"):
                    actor.advance()

            local.while_waiting = let_one_play
            yield local, lambda: None
        return
    shared = SharedMemoryTransport(layout, learner.parameters_nbytes, config.actors.count, config.actors.slots)
    shared.publish(learner.parameters())
    with LocalLauncher(config, shared, run.logs, generation, say) as launcher, shared:
        launcher.start()

        def look_after() -> None:
            interrupts.check()
            launcher.watch()

        shared.while_waiting = look_after
        yield shared, launcher.watch


def not_finite(array: torch.Tensor, name: str) -> bool:
    """Whether a float array has a NaN or an infinity where none belongs (NaN in episode_return means "none")."""
    return name != "episode_return" and array.is_floating_point() and not bool(array.isfinite().all())


def refuse_more_than_memory(nbytes: int) -> None:
    """Say so before the machine does."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if nbytes > memory:
        raise UserError(
            f"the unrolls of all actors need {nbytes / 2**30:,.0f} GiB, this machine has {memory / 2**30:,.0f}: lower "
            "actors.count, actors.envs, actors.unroll_length or actors.slots"
        )
