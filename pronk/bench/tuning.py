"""Finds the number of actors, environments, slots and threads with which this machine trains fastest.

Every setting of a small grid is a real training, started anew for each of its turns: `halving.py` decides whose turn it
is, `spans.py` measures. Nothing that changes what an update learns from is touched. The policy lag does change with
these settings, so it is reported; of settings that are equally fast, the one with the least lag is chosen.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pronk.bench.grid import Setting, grid, least_changes
from pronk.bench.halving import Halving, Turn
from pronk.bench.spans import Span, Stopwatch, all_actors_play, without_end
from pronk.config import Config, available_cores
from pronk.envs.probing import spec_of
from pronk.processes.interrupts import SAVING
from pronk.starting import train
from pronk.training import Say
from pronk.types import Failure, UserError

WARM_UP_SECONDS = 1.0  # of each training, after every actor has delivered
SECONDS = 2.0  # of each turn
GOOD = 0.9  # of the best speed: a default that is faster than this is good enough
NOISE = 0.03  # of the best speed: settings that are as close as this count as equally fast

OnTurn = Callable[[Turn[Setting], Halving[Setting]], None]


@dataclass
class Measured:
    """What is known of one setting."""

    setting: Setting
    spans: list[Span] = field(default_factory=list)
    failure: str | None = None

    @property
    def rate(self) -> float:
        """Median of the steps per second."""
        return statistics.median(span.rate for span in self.spans)

    @property
    def spread(self) -> tuple[float, float]:
        """The lowest and the highest."""
        rates = [span.rate for span in self.spans]
        return min(rates), max(rates)

    @property
    def lag(self) -> float:
        """Median of the policy lag."""
        return statistics.median(span.lag for span in self.spans)


@dataclass
class Tuning:
    """All that was measured."""

    halving: Halving[Setting]
    measured: dict[Setting, Measured]
    cores: int
    interrupted: bool = False
    changes: dict[str, int] = field(default_factory=dict)
    """Of the chosen setting: the keys to set."""

    @property
    def default(self) -> Measured:
        """What the configuration has by itself."""
        return self.measured[self.halving.default]

    def ratio(self, one: Measured) -> float | None:
        """Return a setting's speed as a multiple of the default's in the same rounds."""
        ratios = self.halving.ratios(one.setting)
        return statistics.median(ratios) if ratios else None

    @property
    def best(self) -> Measured:
        """The fastest of those that were measured most often."""
        finalists = self.halving.finalists()
        return self.measured[finalists[0]] if finalists else self.default

    @property
    def default_of_best(self) -> float:
        """Speed of the default as a share of the best one's."""
        return min(1.0, 1 / (self.ratio(self.best) or 1.0))

    @property
    def chosen(self) -> Measured:
        """The default if nothing is faster than it; else, of the settings that are as fast as the best, that with the
        least lag.
        """
        least = (self.ratio(self.best) or 1.0) * (1 - NOISE)
        fast = [self.measured[one] for one in self.halving.finalists()]
        fast = [one for one in fast if (self.ratio(one) or 0.0) >= least]
        if not fast or self.default in fast:
            return self.default
        return min(fast, key=lambda one: one.lag)

    def in_order(self) -> list[Measured]:
        """Return all that were measured, those of most rounds first, and of these the fastest."""
        there = [one for one in self.measured.values() if one.spans]
        return sorted(there, key=lambda one: (len(one.spans), self.ratio(one) or 0.0), reverse=True)

    def failed(self) -> list[Measured]:
        """Return the settings that could not be measured."""
        return [one for one in self.measured.values() if one.failure]


def tune(config: Config, say: Say, on_turn: OnTurn, seconds: float = SECONDS, fixed: Collection[str] = ()) -> Tuning:
    """Measure the grid of a configuration, and return the speeds.

    Ctrl-C ends it; what was measured so far is returned.

    Args:
        config: what to train.
        say: gets warnings, each once.
        on_turn: called before each training.
        seconds: of training that are measured in each turn.
        fixed: keys that stay as they are.

    Raises:
        UserError: the configuration cannot be tuned or trained.
        Failure: it cannot be trained as it is.
    """
    spec, cores = spec_of(config, say), available_cores()
    settings = grid(config, spec, cores, fixed)
    default = settings[0]
    halving = Halving(settings, default)
    tuning = Tuning(halving, {one: Measured(one) for one in settings}, cores)
    say = once(say)
    try:
        for turn in halving.turns():
            on_turn(turn, halving)
            one = tuning.measured[turn.setting]
            try:
                one.spans.append(span_of(config.replace(turn.setting.changes), seconds, say))
            except (Failure, UserError) as error:
                if turn.setting == default:
                    raise
                one.failure = str(error)
                halving.drop(turn.setting)
            else:
                halving.record(turn, one.spans[-1].rate)
    except KeyboardInterrupt:  # also what `train` raises, when its processes have ended
        tuning.interrupted = True
    tuning.changes = least_changes(config, spec, tuning.chosen.setting)
    return tuning


def span_of(config: Config, seconds: float, say: Say) -> Span:
    """Train for a short while, and return what was measured once all actors played."""
    spans: list[Span] = []
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        stopwatch = Stopwatch(seconds, WARM_UP_SECONDS, ready=lambda: all_actors_play(run))

        def goes_on(line: dict[str, Any]) -> bool:
            if span := stopwatch.span(line):
                spans.append(span)
            return not spans

        train(without_end(config), run_dir=run, on_metrics=goes_on, say=say)
    return spans[0]


def once(say: Say) -> Say:
    """Return a `say` that repeats nothing, because every training reports the same.

    It also leaves out that a training is being saved: its directory is deleted at once.
    """
    said: set[str] = set()

    def say_once(message: str) -> None:
        if message not in said and not message.startswith(SAVING):
            said.add(message)
            say(message)

    return say_once
