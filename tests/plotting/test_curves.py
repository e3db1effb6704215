import numpy as np
import pytest
from made_runs import made_run

from pronk.metrics.statistics import bootstrap, iqm
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


def test_the_mean_goes_on_while_two_runs_are_left():
    long, middle, short = (
        (np.array([0.0, end]), np.array([height, height])) for end, height in ((10.0, 0.0), (8.0, 6.0), (4.0, 12.0))
    )
    x, mean, low, high = summarised([long, middle, short], "range")
    assert (x[0], x[-1]) == (0.0, 8.0)
    assert (np.diff(x) >= 0).all()
    assert set(zip(mean.round(6), low, high, strict=True)) == {(6.0, 0.0, 12.0), (3.0, 0.0, 6.0)}
    assert mean[x < 4].max() == mean[x < 4].min() == pytest.approx(6.0)
    assert mean[x > 4] == pytest.approx(np.full((x > 4).sum(), 3.0))


def test_runs_that_end_almost_together_end_together():
    curves = [(np.array([0.0, end]), np.array([0.0, end])) for end in (99.0, 99.5, 100.0, 99.9)]
    x, mean, *_ = summarised(curves, "range")
    assert x[-1] == 99.0
    assert mean == pytest.approx(x)


def test_runs_without_a_common_place_have_no_mean():
    curves = [(np.array([0.0, 1.0]), np.zeros(2)), (np.array([2.0, 3.0]), np.zeros(2))]
    assert [len(part) for part in summarised(curves, "bootstrap")] == [0, 0, 0, 0]
    assert [len(part) for part in summarised([(np.array([1.0]), np.ones(1))] * 2, "std")] == [1, 1, 1, 1]


def test_centre_and_bootstrap_band():
    x = np.array([0.0, 1.0])
    values = np.random.default_rng(1).normal(size=9)
    curves = [(x, np.array([value, 2 * value])) for value in values]
    _, centre, low, high = summarised(curves, "bootstrap", "iqm")
    middle = np.sort(values)[2:-2].mean()
    assert [centre[0], centre[-1]] == pytest.approx([middle, 2 * middle])
    by_statistics = bootstrap(iqm, values[:, None], resamples=20_000)
    assert [low[0], high[0]] == pytest.approx([by_statistics.low, by_statistics.high], abs=0.1)
    assert (low[-1], high[-1]) == (pytest.approx(2 * low[0]), pytest.approx(2 * high[0]))  # whole runs are drawn
    assert summarised(curves, "bootstrap", "mean")[1][0] == pytest.approx(values.mean())


def test_mean_and_band_of_two_runs():
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
