"""Compares groups of runs: a score for each run, and for each group the statistics of `pronk/metrics/statistics.py`.

Groups are those of `comparison.py`, joined over environments: a group is one way to train, tasks are what it played.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pronk.config.errors import nearest
from pronk.metrics.statistics import (
    CONFIDENCE,
    RESAMPLES,
    Interval,
    bootstrap,
    iqm,
    mean,
    median,
    optimality_gap,
    probability_of_improvement,
)
from pronk.plotting.comparison import Group, differing_keys, group_by, group_runs
from pronk.plotting.scores import METRICS, NORMALISATIONS, normalised, raw_scores, why_not
from pronk.runs.reading import Run, find_runs, is_number
from pronk.types import UserError

TRUSTED_RUNS = 3  # of a task; with fewer, an interval says little
ENOUGH_SCORES = 5  # of a group; with 3, a 95% interval holds the true value in 75% (benchmarks/interval_coverage.py)


@dataclass(frozen=True)
class GroupScores:
    """The runs of one group, their scores and what follows from them."""

    label: str
    runs: tuple[Run, ...]
    scores: np.ndarray
    """[runs, tasks], normalised if asked for; NaN where a task has fewer runs than another."""
    iqm: Interval
    mean: float
    median: float
    optimality_gap: float | None
    """From 1; None for scores that are not normalised."""
    better: Interval | None
    """The probability that a run of this group beats one of the first group; None for the first group itself."""

    @property
    def fewest(self) -> int:
        """How many runs the task with the fewest has."""
        return int((~np.isnan(self.scores)).sum(axis=0).min())


@dataclass(frozen=True)
class Compared:
    """The result of `compare`."""

    metric: str
    normalise: str
    tasks: list[str]
    groups: list[GroupScores]
    left_out: dict[str, str] = field(default_factory=dict)
    """Run directory -> why it was not compared."""
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Everything in plain numbers; None for an end of an interval that cannot be estimated."""
        facts = {"metric": self.metric, "normalise": self.normalise, "tasks": self.tasks}
        how = {"confidence": CONFIDENCE, "resamples": RESAMPLES}
        groups = [self._group_as_json(group) for group in self.groups]
        return {**facts, **how, "groups": groups, "left_out": self.left_out, "notes": self.notes}

    def _group_as_json(self, group: GroupScores) -> dict[str, Any]:
        columns = zip(self.tasks, group.scores.T.tolist(), strict=True)
        return {
            "group": group.label,
            "runs": [str(run.path) for run in group.runs],
            "scores": {task: [score for score in column if is_number(score)] for task, column in columns},
            "iqm": plain_interval(group.iqm),
            "mean": group.mean,
            "median": group.median,
            "optimality_gap": group.optimality_gap,
            "better_than_first": plain_interval(group.better) if group.better else None,
        }


def compare(
    runs: str | Path | Sequence[str | Path],
    *,
    by: Sequence[str] = (),
    metric: str = "final",
    normalise: str = "none",
) -> Compared:
    """Compare groups of runs by the statistics of few runs (see `pronk/metrics/statistics.py`).

    A directory that is not a run stands for all the runs in it. Runs that differ only by seed are a group; `by` names
    the settings to group by instead. `metric` is one of METRICS. `normalise=human` maps random play to 0 and a human to
    1 (Atari); `range` the worst run of a task to 0 and its best to 1. Runs without a score are left out and named. Only
    tasks that all groups have played are compared. Raises `UserError` if there is nothing to compare.
    """
    for name, value, choices in (("metric", metric, tuple(METRICS)), ("normalise", normalise, NORMALISATIONS)):
        if value not in choices:
            raise UserError(f"{name} must be one of {', '.join(choices)}, got {value!r}{nearest(value, choices)}")
    scored, left_out = runs_to_compare(runs, metric)
    groups = group_by(scored, by) if by else group_runs(scored)
    together = by_label(groups)
    tasks, notes = shared_tasks(together)
    table = scores_of(together, tasks, metric, normalise)
    results = summarise(together, table, normalise)
    notes += notes_on(results, groups, tasks, by, normalise)
    return Compared(metric, normalise, tasks, results, left_out, notes)


# ---- which runs


def runs_to_compare(runs: str | Path | Sequence[str | Path], metric: str) -> tuple[list[Run], dict[str, str]]:
    """Return the runs that have a score, and why the others are left out. Raises `UserError` if there is none."""
    found = find_runs([str(runs)] if isinstance(runs, str | Path) else [str(run) for run in runs])
    left_out = {str(run.path): reason for run in found if (reason := why_not(run, metric))}
    scored = [run for run in found if str(run.path) not in left_out]
    if not scored:
        path, reason = next(iter(left_out.items()))
        raise UserError(f"nothing to compare: {path} is left out ({reason}){and_more(len(left_out) - 1)}")
    return scored, left_out


def and_more(count: int) -> str:
    """Return `, and 3 more`, or nothing."""
    return f", and {count} more" if count else ""


def by_label(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Join the groups of different environments that were trained alike: label -> one group per task."""
    together: dict[str, list[Group]] = {}
    for group in groups:
        together.setdefault(group.label or "all runs", []).append(group)
    return together


def shared_tasks(together: dict[str, list[Group]]) -> tuple[list[str], list[str]]:
    """Return the tasks that all groups have played, and a note on each of the others."""
    played = {label: dict.fromkeys(group.environment for group in groups) for label, groups in together.items()}
    tasks = list(dict.fromkeys(task for some in played.values() for task in some))
    shared = [task for task in tasks if all(task in some for some in played.values())]
    if not shared:
        (first, some), (second, others) = list(played.items())[:2]
        raise UserError(
            f"no task was played by all groups: {first} played {', '.join(some)}; {second} played "
            f"{', '.join(others)}; group by a setting that does not depend on the task"
        )
    notes = [
        f"{task} is left out: not played by {'; '.join(label for label, some in played.items() if task not in some)}"
        for task in tasks
        if task not in shared
    ]
    return shared, notes


# ---- scores


def scores_of(
    together: dict[str, list[Group]], tasks: list[str], metric: str, normalise: str
) -> dict[str, dict[str, list[float]]]:
    """Label -> task -> the score of each run."""
    answer: dict[str, dict[str, list[float]]] = {label: {} for label in together}
    for task in tasks:
        runs = {label: runs_of(groups, task) for label, groups in together.items()}
        raw = raw_scores([run for some in runs.values() for run in some], metric)
        scaled = dict(zip(raw, normalised(raw, task, normalise), strict=True))
        for label, some in runs.items():
            answer[label][task] = [scaled[run] for run in some]
    return answer


def runs_of(groups: Sequence[Group], task: str) -> list[Run]:
    """The runs of these groups that played a task."""
    return [run for group in groups if group.environment == task for run in group.runs]


# ---- statistics


def summarise(
    together: dict[str, list[Group]], table: dict[str, dict[str, list[float]]], normalise: str
) -> list[GroupScores]:
    """The statistics of every group, in order."""
    arrays = {label: as_array(list(columns.values())) for label, columns in table.items()}
    first = next(iter(arrays.values()))
    answer = []
    for label, scores in arrays.items():
        runs = tuple(run for task in table[label] for run in runs_of(together[label], task))
        better = None if scores is first else with_interval(probability_of_improvement, scores, first)
        gap = None if normalise == "none" else float(optimality_gap(scores))
        middle = float(mean(scores)), float(median(scores))
        answer.append(GroupScores(label, runs, scores, with_interval(iqm, scores), *middle, gap, better))
    return answer


def as_array(columns: list[list[float]]) -> np.ndarray:
    """[runs, tasks], NaN below the scores of a task that has fewer runs than another."""
    scores = np.full((max(map(len, columns)), len(columns)), np.nan)
    for task, column in enumerate(columns):
        scores[: len(column), task] = column
    return scores


def with_interval(statistic: Any, *samples: np.ndarray) -> Interval:
    """A statistic with its interval; the ends are NaN where a task has only one run, which shows no spread."""
    interval = bootstrap(statistic, *samples)
    if min((~np.isnan(scores)).sum(axis=0).min() for scores in samples) < 2:
        return interval._replace(low=np.array(np.nan), high=np.array(np.nan))
    return interval


def plain_interval(interval: Interval) -> dict[str, float | None]:
    """For JSON, which has no NaN."""
    return {name: float(end) if is_number(float(end)) else None for name, end in interval._asdict().items()}


# ---- what a reader has to know


def notes_on(
    results: list[GroupScores], groups: list[Group], tasks: list[str], by: Sequence[str], normalise: str
) -> list[str]:
    """What makes the numbers less certain than they look."""
    notes = []
    if len(tasks) > 1 and normalise == "none":
        notes.append("scores of different tasks are averaged as they are; normalise them to give each the same weight")
    labels: dict[str, list[str]] = {}  # of the groups that a note is about
    for group in results:
        for note in notes_on_group(group):
            labels.setdefault(note, []).append(group.label)
    every = len(results) if len(results) > 1 else None
    notes += [f"{'all groups' if len(some) == every else '; '.join(some)}: {note}" for note, some in labels.items()]
    played = [(run, group.environment) for group in groups for run in group.runs]
    others = differing_keys([[run] for run, _ in played], [environment for _, environment in played])
    others = [key for key in others if key not in by] if by else []
    if others:
        more = and_more(len(others) - 3) if len(others) > 3 else ""
        notes.append(f"the runs also differ in {', '.join(others[:3])}{more}, which may be the cause of a difference")
    hidden = max(group.hidden for group in groups)
    if hidden:
        notes.append(f"the groups differ in {hidden} more settings than their names show; choose what to group by")
    return notes


def notes_on_group(group: GroupScores) -> list[str]:
    """What makes the numbers of one group less certain, without its name."""
    notes = []
    counts = (~np.isnan(group.scores)).sum(axis=0)
    if group.fewest < TRUSTED_RUNS:
        each = " of a task" if len(counts) > 1 else ""
        count = f"{group.fewest} run{'s' if group.fewest > 1 else ''}{each}"
        notes.append(f"an interval of {count} is not trustworthy; train at least {TRUSTED_RUNS} seeds")
    elif counts.sum() < ENOUGH_SCORES:
        notes.append(f"an interval of {counts.sum()} runs is too narrow; train {ENOUGH_SCORES} or more")
    if counts.min() < counts.max():
        notes.append(f"{counts.min()} to {counts.max()} runs of a task; more runs weigh more in the IQM")
    different = {repr(sorted(run.settings.items(), key=str)) for run in group.runs}
    if len(different) < len(group.runs):
        notes.append("some runs have the same seed, so they may not be independent")
    for run in group.runs:
        if run.state == "interrupted":
            notes.append(f"{run.path} was interrupted at {run.last.get('env_steps', 0):,} steps")
    return notes
