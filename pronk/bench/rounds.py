"""Measures training and its parts by turns, in short rounds, so that a slow moment of the machine affects both.

    round    train for some seconds | pause the training | each part alone, on all cores at once | continue

A step needs its environment, an action, and `passes` times the learner. Cores that share caches, clocks or threads are
slower together than alone, so each part is measured on all of them at once. From its rate per core follows the best
that the machine could do:

    limit = cores / (1/env + 1/inference + passes/learner)

A learner on a GPU takes nothing from the cores: there the limit is the lower one of cores / (1/env + 1/inference) and
learner / passes. Figures are medians over the rounds.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from pronk.bench.advice import advice
from pronk.bench.parts import NAMES
from pronk.bench.spans import Stopwatch, without_end
from pronk.bench.workers import Workers, part_workers
from pronk.config import Config, ResolvedConfig, available_cores, decided, resolve
from pronk.device import choose_device
from pronk.envs.probing import spec_of
from pronk.processes.interrupts import Interrupted
from pronk.starting import TrainingInterrupted, train
from pronk.training import Say

WARM_UP_SECONDS = 3.0  # of the training, before the first round
SETTLE_SECONDS = 0.3  # after each pause, until queues are as full as usual
PART_SHARE = 0.2  # of a round's seconds of training, for each part
ROUNDS = 5


class Round(NamedTuple):
    """One round: the rate of each part per core, and that of training, in steps per second."""

    env: float
    inference: float
    learner: float
    trained: float
    passes: float
    """How often a step was learnt from."""
    line: dict[str, Any]
    """The last line of metrics."""


def measure(config: Config, seconds: float, say: Say, rounds: int = ROUNDS) -> dict[str, Any]:
    """Return medians in steps/s, `efficiency` (trained / limit), their spreads, and what to do about it.

    Args:
        config: what to train.
        seconds: of training, over all rounds.
        say: gets warnings.
        rounds: how many.
    """
    resolved = resolve(decided(config, spec_of(config, say)))
    cores = available_cores()
    with tempfile.TemporaryDirectory() as folder, part_workers(resolved, cores, Path(folder), say) as workers:
        display = Rounds(workers, resolved, seconds / rounds, rounds)
        try:
            train(without_end(config), run_dir=Path(folder) / "run", display=display, say=say)
        except TrainingInterrupted:
            if len(display.done) < rounds:  # it was the user's Ctrl-C
                raise
    on_gpu = choose_device(resolved.learner.device).type != "cpu"
    return summary(display.done, cores, on_gpu, resolved)


def summary(done: list[Round], cores: int, on_gpu: bool, config: ResolvedConfig) -> dict[str, Any]:
    """Return the figures of all rounds."""
    limits = [limit(one, cores, on_gpu) for one in done]
    values = {name: [getattr(one, name) for one in done] for name in (*NAMES, "trained", "passes")}
    values |= {"limit": limits, "efficiency": [one.trained / most for one, most in zip(done, limits, strict=True)]}
    figures: dict[str, Any] = {name: statistics.median(values[name]) for name in (*NAMES, "limit", "trained")}
    figures |= {name: statistics.median(values[name]) for name in ("efficiency", "passes")}
    spreads = {name: [min(of_rounds), max(of_rounds)] for name, of_rounds in values.items()}
    found, hint = advice(figures, done[-1].line, config)
    return {**figures, "cores": cores, "rounds": len(done), "spread": spreads, "bottleneck": found, "advice": hint}


def limit(one: Round, cores: int, on_gpu: bool) -> float:
    """Return the steps per second if no time were lost between the parts."""
    if on_gpu:
        return min(cores / (1 / one.env + 1 / one.inference), one.learner / one.passes)
    return cores / (1 / one.env + 1 / one.inference + one.passes / one.learner)


class Rounds:
    """A sink that measures training between lines of metrics. It pauses training by not returning from `write`.

    Actors pause too, once their slots are full.
    """

    def __init__(self, parts: Workers, config: ResolvedConfig, seconds: float, rounds: int) -> None:
        """`seconds`: of training, per round."""
        self._parts, self._seconds, self._rounds = parts, seconds, rounds
        self._rows = config.actors.unroll_length * config.learner.batch_size
        self._stopwatch = Stopwatch(seconds, WARM_UP_SECONDS)
        self.done: list[Round] = []

    def __enter__(self) -> Rounds:
        return self

    def __exit__(self, *_: object) -> None: ...

    def write(self, line: dict[str, Any]) -> None:
        """Measure the parts whenever a span of training is complete."""
        span = self._stopwatch.span(line)
        if span is None:
            return
        rates = {name: self._parts.rate(name, self._seconds * PART_SHARE) for name in NAMES}
        passes = span.updates * self._rows / span.steps
        self.done.append(Round(**rates, trained=span.rate, passes=passes, line=line))
        if len(self.done) == self._rounds:
            raise Interrupted  # ends the training, as Ctrl-C does
        self._stopwatch.restart(SETTLE_SECONDS)
