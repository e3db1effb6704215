import numpy as np
import pytest
from made_runs import made_run

from pronk.plotting.curves import curve_of, smoothed, summarised
from pronk.runs.reading import Run


def test_a_curve_leaves_out_what_is_not_known(tmp_path):
    lines = Run(made_run(tmp_path / "run", returns=[None, 1.0, None, 3.0])).metrics
    x, y = curve_of(lines, "env_steps", "episode_return")
    assert (x.tolist(), y.tolist()) == ([1000.0, 3000.0], [1.0, 3.0])
    assert [len(part) for part in curve_of(lines, "env_steps", "no_such_metric")] == [0, 0]


def test_smoothing_is_the_mean_of_the_neighbourhood():
    x, y = np.arange(11.0), np.random.default_rng(1).normal(size=11)
    by_hand = [y[max(0, i - 2) : i + 3].mean() for i in range(11)]
    assert smoothed(x, y, 0.4) == pytest.approx(by_hand)
    assert smoothed(x, y, 0.0) is y


def test_mean_and_band_are_of_all_seeds_or_of_none():
    one = np.array([0.0, 10.0]), np.array([0.0, 10.0])
    two = np.array([2.0, 6.0]), np.array([4.0, 8.0])  # two above the first one
    x, mean, low, high = summarised([one, two], "range")
    assert (x[0], x[-1]) == (2.0, 6.0)
    assert mean == pytest.approx(x + 1)
    assert (low, high) == (pytest.approx(x), pytest.approx(x + 2))
    _, mean, low, high = summarised([one, two], "std")
    assert high - mean == pytest.approx(np.full(len(x), np.sqrt(2)))
    assert mean - low == pytest.approx(np.full(len(x), np.sqrt(2)))


def test_one_curve_is_itself():
    curve = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    x, *rest = summarised([curve], "range")
    assert x is curve[0]
    assert all(part is curve[1] for part in rest)
