"""Returns of several tasks: an estimate for each, and their mean, in which every task has the same weight.

The mean exists once every task has one, and is full when all are: a task whose episodes take longer would otherwise be
missing from it at first. With one task it is that task's estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from pronk.metrics.returns import Column, Confirmation, Episode, Estimate, Returns


class TaskReturns:
    """One `Returns` for each task. `Column.task` and `Episode.task` are indices into `names`."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._each = [Returns() for _ in names]

    def record(self, columns: Sequence[Column], episodes: Sequence[Episode], steps: int) -> None:
        """Add a batch; see `Returns.record`."""
        for returns, part in zip(self._each, by_task(len(self._each), columns, episodes), strict=True):
            returns.record(*part, steps)

    def estimates(self) -> list[Estimate | None]:
        """Return the estimate of each task; None before its first episode has ended."""
        return [returns.estimate() for returns in self._each]

    def estimate(self) -> Estimate | None:
        """Return the mean over the tasks; None before each of them has an estimate."""
        return mean_of(self.estimates())

    def std(self) -> float | None:
        """Return the standard deviation of episodes within their task; None before each task has an episode."""
        known = [std for returns in self._each if (std := returns.std()) is not None]
        if len(known) < len(self._each):
            return None
        return known[0] if len(known) == 1 else math.sqrt(math.fsum(std**2 for std in known) / len(known))

    def confirmation(self) -> TaskConfirmation:
        """Start to measure the return of the present weights, in each task."""
        return TaskConfirmation([returns.confirmation() for returns in self._each])

    def state(self) -> Any:
        """For the checkpoint: plain data, by name. With one task, what earlier versions wrote."""
        if len(self._each) == 1:
            return self._each[0].state()
        return {name: returns.state() for name, returns in zip(self.names, self._each, strict=True)}

    def load_state(self, state: Any) -> None:
        """Continue from `state()`. A task that it does not know starts anew."""
        by_name = state if isinstance(state, dict) else {self.names[0]: state}
        for name, returns in zip(self.names, self._each, strict=True):
            if name in by_name:
                returns.load_state(by_name[name])


class TaskConfirmation:
    """One `Confirmation` for each task."""

    def __init__(self, each: Sequence[Confirmation]) -> None:
        self._each = each

    @property
    def steps(self) -> int:
        """Played so far."""
        return sum(confirmation.steps for confirmation in self._each)

    def record(self, columns: Sequence[Column], episodes: Sequence[Episode], steps: int) -> None:
        """Add a batch; see `Confirmation.record`."""
        for confirmation, part in zip(self._each, by_task(len(self._each), columns, episodes), strict=True):
            confirmation.record(*part, steps)

    def estimates(self) -> list[Estimate] | None:
        """Return the estimate for the held weights in each task. None while more episodes are needed."""
        found = [estimate for one in self._each if (estimate := one.estimate()) is not None]
        return found if len(found) == len(self._each) else None


def mean_of(estimates: Iterable[Estimate | None]) -> Estimate | None:
    """Return the mean over tasks; None if a task has no estimate yet."""
    each = list(estimates)
    known = [estimate for estimate in each if estimate is not None]
    if len(known) < len(each):
        return None
    if len(known) == 1:
        return known[0]
    return Estimate(
        math.fsum(estimate.value for estimate in known) / len(known),
        math.fsum(estimate.length for estimate in known) / len(known),
        episodes=sum(estimate.episodes for estimate in known),
        full=all(estimate.full for estimate in known),
    )


def by_task(
    tasks: int, columns: Sequence[Column], episodes: Sequence[Episode]
) -> list[tuple[Sequence[Column], Sequence[Episode]]]:
    """Return the columns and episodes of each task."""
    if tasks == 1:
        return [(columns, episodes)]
    parts: list[tuple[list[Column], list[Episode]]] = [([], []) for _ in range(tasks)]
    # Index 1 is the task of both.
    for column in columns:
        parts[column[1]][0].append(column)
    for episode in episodes:
        parts[episode[1]][1].append(episode)
    return list(parts)
