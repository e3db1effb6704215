"""Statistics of a few runs on one task or several: interquartile mean, bootstrap intervals, performance profiles.

With a handful of runs, the difference between two means is often chance. Agarwal et al. 2021 (Deep Reinforcement
Learning at the Edge of the Statistical Precipice, arXiv 2108.13264) recommend these statistics, with their intervals.

`scores` is an array [runs, tasks], one score per run; NaN where a task has fewer runs than another. A statistic also
takes leading axes, [..., runs, tasks], and returns one value for each: this is how all resamples of the bootstrap are
computed at once. NumPy only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 2000  # from seed to seed, the ends of an interval then vary by 1 to 2% of its width

Array = np.ndarray[Any, Any]


class Interval(NamedTuple):
    """A statistic of the scores, and the ends of its confidence interval; all three of one shape."""

    value: Array
    low: Array
    high: Array


# ---- statistics: [..., runs, tasks] -> [...]


def iqm(scores: Array) -> Array:
    """Interquartile mean: the mean of the middle half of all scores, over runs and tasks together.

    It resists outliers as a median does, with less variance. Of N scores, N // 4 are cut at either end, so fewer than
    four are all averaged.
    """
    ordered = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)  # NaN last
    count = int(np.count_nonzero(~np.isnan(ordered), axis=-1).max())
    cut = count // 4
    return np.asarray(ordered[..., cut : count - cut].mean(axis=-1))


def mean(scores: Array) -> Array:
    """The mean of the tasks' means."""
    return task_means(scores).mean(axis=-1)


def median(scores: Array) -> Array:
    """The median of the tasks' means, as papers on Atari report it; with one task, the median of its runs."""
    if scores.shape[-1] == 1:
        return np.asarray(np.nanmedian(scores[..., 0], axis=-1))
    return np.asarray(np.median(task_means(scores), axis=-1))


def optimality_gap(scores: Array, goal: float = 1.0) -> Array:
    """How far the scores fall short of `goal`, on average. A score above the goal does not make up for one below it."""
    return goal - mean(np.minimum(scores, goal))


def performance_profile(scores: Array, thresholds: Array) -> Array:
    """Return the share of runs with a score above each threshold, [..., thresholds]. Each task counts the same."""
    known = ~np.isnan(scores)
    weight = known / (known.sum(axis=-2, keepdims=True) * scores.shape[-1])
    above = [((scores > threshold) * weight).sum(axis=(-2, -1)) for threshold in thresholds]
    return np.stack(above, axis=-1)


def probability_of_improvement(scores: Array, other: Array) -> Array:
    """Return the probability that a run of `scores` beats a run of `other` on the same task, averaged over tasks.

    Both are [..., runs, tasks] with the same tasks; their numbers of runs may differ. A tie counts half.
    """
    wins = np.zeros(1)
    for index in range(scores.shape[-2]):  # all pairs at once would need runs x runs times the memory
        one = scores[..., index : index + 1, :]
        wins = wins + ((one > other) + 0.5 * (one == other)).sum(axis=-2)
    pairs = (~np.isnan(scores)).sum(axis=-2) * (~np.isnan(other)).sum(axis=-2)
    return np.asarray((wins / pairs).mean(axis=-1))


def task_means(scores: Array) -> Array:
    """The mean of each task's runs, [..., tasks]."""
    return np.asarray(np.nansum(scores, axis=-2) / (~np.isnan(scores)).sum(axis=-2))


# ---- intervals


def bootstrap(
    statistic: Callable[..., Array],
    *samples: Array,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Interval:
    """Return a statistic with its stratified bootstrap interval (percentiles).

    `statistic` takes as many arrays [..., runs, tasks] as there are `samples`, each of which is resampled on its own.
    The same seed gives the same interval. With one run per task there is nothing to resample: the interval is a point.

        bootstrap(iqm, scores)
        bootstrap(probability_of_improvement, scores, baseline)
    """
    arrays = [checked(scores) for scores in samples]
    streams = np.random.SeedSequence(seed).spawn(len(arrays))
    drawn = [
        resampled(scores, resamples, np.random.default_rng(stream))
        for scores, stream in zip(arrays, streams, strict=True)
    ]
    tail = 50 * (1 - confidence)
    low, high = np.percentile(statistic(*drawn), [tail, 100 - tail], axis=0)
    return Interval(statistic(*arrays), low, high)


def resampled(scores: Array, count: int, random: np.random.Generator) -> Array:
    """Draw runs with replacement within each task, as many as the task has: [count, runs, tasks].

    Tasks are strata: each resample has every task, because the tasks were chosen and the runs are what is random.
    """
    missing = np.isnan(scores)
    runs, tasks = scores.shape
    packed = np.take_along_axis(scores, np.argsort(missing, axis=0, kind="stable"), axis=0)  # NaN below the scores
    known = runs - missing.sum(axis=0)
    drawn = packed[random.integers(known, size=(count, runs, tasks)), np.arange(tasks)]
    drawn[:, np.arange(runs)[:, None] >= known] = np.nan
    return np.asarray(drawn)


def checked(scores: Array) -> Array:
    """Return scores as floats, or raise ValueError unless they are [runs, tasks] with a score for every task."""
    array = np.asarray(scores, float)
    if array.ndim != 2 or not array.size:
        raise ValueError(f"scores must be an array [runs, tasks], got the shape {list(array.shape)}")
    if np.isinf(array).any() or np.isnan(array).all(axis=0).any():
        raise ValueError("scores must be finite, and each task needs the score of at least one run")
    return array
