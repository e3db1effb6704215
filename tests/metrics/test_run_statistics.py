"""Against slow oracles in plain Python, against values computed by hand, and the intervals against simulation."""

import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pronk.metrics.statistics import (
    bootstrap,
    iqm,
    mean,
    median,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    resampled,
)

NAN = float("nan")
SHAPES = st.tuples(st.integers(1, 7), st.integers(1, 4))
NUMBERS = st.integers(-5, 5).map(float)  # few different ones, so that there are ties


@st.composite
def scores_with_gaps(draw, tasks=None):
    """[runs, tasks] with NaN in some places, but at least one run for each task."""
    runs, drawn_tasks = draw(SHAPES)
    scores = draw(arrays(float, (runs, tasks or drawn_tasks), elements=NUMBERS))
    gaps = draw(arrays(bool, scores.shape))
    gaps[draw(st.integers(0, runs - 1))] = False
    return np.where(gaps, np.nan, scores)


def known(scores):
    """The scores of each task, as lists."""
    return [[score for score in column if score == score] for column in scores.T.tolist()]


# ---- oracles


@settings(deadline=None)
@given(scores_with_gaps())
def test_iqm_is_the_mean_of_the_middle_half(scores):
    ordered = sorted(score for task in known(scores) for score in task)
    cut = int(0.25 * len(ordered))
    assert iqm(scores) == pytest.approx(statistics.fmean(ordered[cut : len(ordered) - cut]))


@settings(deadline=None)
@given(scores_with_gaps())
def test_mean_median_and_gap(scores):
    tasks = known(scores)
    means = [statistics.fmean(task) for task in tasks]
    assert mean(scores) == pytest.approx(statistics.fmean(means))
    assert median(scores) == pytest.approx(statistics.median(means if len(tasks) > 1 else tasks[0]))
    missing = [statistics.fmean(2.0 - min(score, 2.0) for score in task) for task in tasks]
    assert optimality_gap(scores, 2.0) == pytest.approx(statistics.fmean(missing))


@settings(deadline=None)
@given(scores_with_gaps())
def test_performance_profile(scores):
    thresholds = np.array([-6.0, -1.0, 0.5, 5.0])
    by_hand = [statistics.fmean(sum(s > t for s in task) / len(task) for task in known(scores)) for t in thresholds]
    assert performance_profile(scores, thresholds) == pytest.approx(by_hand)


@settings(deadline=None)
@given(scores_with_gaps(tasks=3), scores_with_gaps(tasks=3))
def test_probability_of_improvement(one, two):
    shares = [
        statistics.fmean(1.0 if x > y else 0.5 if x == y else 0.0 for x in xs for y in ys)
        for xs, ys in zip(known(one), known(two), strict=True)
    ]
    assert probability_of_improvement(one, two) == pytest.approx(statistics.fmean(shares))
    assert probability_of_improvement(two, one) == pytest.approx(1 - statistics.fmean(shares))


@settings(deadline=None)
@given(scores_with_gaps())
def test_a_resample_has_the_same_number_of_runs_of_each_task(scores):
    drawn = resampled(scores, 20, np.random.default_rng(1))
    assert drawn.shape == (20, *scores.shape)
    for one in drawn:
        for before, after in zip(known(scores), known(one), strict=True):
            assert len(before) == len(after)
            assert set(after) <= set(before)


@settings(deadline=None)
@given(scores_with_gaps(tasks=3), scores_with_gaps(tasks=3))
def test_leading_axes_are_computed_one_by_one(scores, other):
    random = np.random.default_rng(2)
    drawn, others = resampled(scores, 5, random), resampled(other, 5, random)
    for statistic in (iqm, mean, median, optimality_gap):
        assert statistic(drawn) == pytest.approx(np.array([statistic(one) for one in drawn]))
    thresholds = np.array([0.0, 1.0])
    by_one = np.array([performance_profile(one, thresholds) for one in drawn])
    assert performance_profile(drawn, thresholds) == pytest.approx(by_one)
    pairs = np.array([probability_of_improvement(x, y) for x, y in zip(drawn, others, strict=True)])
    assert probability_of_improvement(drawn, others) == pytest.approx(pairs)


def test_the_interval_is_that_of_a_slow_bootstrap():
    """Run by run and resample by resample. Only the random numbers differ, so the ends are near, not equal."""
    scores = np.random.default_rng(3).normal(size=(6, 3)) + np.array([0.0, 5.0, 10.0])
    random = np.random.default_rng(4)
    values = []
    for _ in range(4000):
        picked = [[column[random.integers(len(column))] for _ in column] for column in scores.T.tolist()]
        pooled = sorted(score for column in picked for score in column)
        values.append(statistics.fmean(pooled[4:-4]))
    interval = bootstrap(iqm, scores, resamples=4000)
    assert [interval.low, interval.high] == pytest.approx(np.percentile(values, [2.5, 97.5]), abs=0.06)
    assert interval.high - interval.low > 0.6


# ---- known values


def test_known_values():
    column = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0], [6.0], [1000.0]])
    assert iqm(column) == 3.5  # of 2, 3, 4 and 5
    assert median(column) == 3.5
    assert mean(column) == 127.625
    assert optimality_gap(np.array([[0.5, 3.0], [0.7, 0.0]])) == pytest.approx(0.45)
    assert performance_profile(column, np.array([-1.0, 3.0, 1000.0])).tolist() == [1.0, 0.5, 0.0]


def test_a_task_with_more_runs_weighs_the_same_in_the_mean_and_the_profile():
    scores = np.array([[0.0, 1.0], [0.0, NAN], [0.0, NAN]])
    assert mean(scores) == 0.5
    assert performance_profile(scores, np.array([0.5])).tolist() == [0.5]


def test_improvement_is_certain_impossible_or_even():
    low, high = np.zeros((3, 2)), np.ones((5, 2))
    assert bootstrap(probability_of_improvement, high, low) == (1.0, 1.0, 1.0)
    assert bootstrap(probability_of_improvement, low, high) == (0.0, 0.0, 0.0)
    assert bootstrap(probability_of_improvement, low, low) == (0.5, 0.5, 0.5)
    mixed = np.array([[0.0, 1.0], [0.0, 1.0]])  # as good in one task, better in the other
    assert probability_of_improvement(mixed, low) == 0.75


# ---- intervals


def test_the_seed_decides_the_interval():
    scores = np.random.default_rng(5).normal(size=(5, 2))
    assert bootstrap(iqm, scores) == bootstrap(iqm, scores)
    assert bootstrap(iqm, scores, seed=1).low != bootstrap(iqm, scores).low
    wide, narrow = bootstrap(iqm, scores), bootstrap(iqm, scores, confidence=0.5)
    assert wide.low < narrow.low < wide.value < narrow.high < wide.high


def test_samples_are_resampled_independently():
    scores = np.random.default_rng(6).normal(size=(8, 1))
    same = bootstrap(probability_of_improvement, scores, scores)
    assert same.value == 0.5
    assert same.low < 0.4
    assert same.high > 0.6


def test_a_band_has_the_shape_of_its_profile():
    scores, thresholds = np.random.default_rng(7).normal(size=(6, 4)), np.linspace(-2, 2, 9)
    value, low, high = bootstrap(lambda some: performance_profile(some, thresholds), scores)
    assert value.shape == low.shape == high.shape == (9,)
    assert ((low <= value) & (value <= high)).all()
    assert (np.diff(value) <= 0).all()


@pytest.mark.parametrize(("runs", "tasks", "least"), [(10, 1, 0.85), (5, 6, 0.85), (20, 3, 0.90)])
def test_about_95_in_100_intervals_hold_the_true_value(runs, tasks, least):
    """Of symmetric noise around each task's own mean. Percentile intervals of few runs are a little too narrow."""
    random = np.random.default_rng(8)
    centres = np.arange(tasks) * 0.3
    truth = iqm(random.normal(size=(200_000, tasks)) + centres)
    intervals = [bootstrap(iqm, random.normal(size=(runs, tasks)) + centres, resamples=400) for _ in range(300)]
    covered = np.mean([low <= truth <= high for _, low, high in intervals])
    assert least < covered < 0.99


@pytest.mark.parametrize(
    ("scores", "told"),
    [
        ([1.0, 2.0], r"\[runs, tasks\], got the shape \[2\]"),
        (np.zeros((0, 3)), r"got the shape \[0, 3\]"),
        ([[1.0, NAN], [2.0, NAN]], "each task needs the score of at least one run"),
        ([[1.0, float("inf")]], "scores must be finite"),
    ],
)
def test_scores_of_another_shape_are_refused(scores, told):
    with pytest.raises(ValueError, match=told):
        bootstrap(iqm, np.array(scores))
