"""Counters add up, means are of what came since the last line, and what was not there is None."""

from __future__ import annotations

import time

import numpy as np
import pytest

from pronk.layout import UnrollLayout
from pronk.metrics import WINDOW, Experience, Metrics
from pronk.types import ActionSpec, ArraySpec, EnvSpec, Unroll, unroll_specs

T, N = 4, 3
CLOCK = ("wall_seconds", "steps_per_second", "learner_waits")


def batch(ended: dict[tuple[int, int], tuple[float, int]] | None = None, invalid: int = 0, version: int = 0) -> Unroll:
    """An unroll in which some episodes end: at (t, n), with a return and a length."""
    unroll = UnrollLayout(unroll_specs(EnvSpec(ArraySpec((), "float32"), ActionSpec((), (2,))), {}, T, N)).allocate()
    unroll.valid[:] = True
    unroll.valid.reshape(-1)[:invalid] = False
    unroll.version[:] = version
    unroll.episode_return[:] = np.nan
    for place, (value, length) in (ended or {}).items():
        unroll.episode_return[place], unroll.episode_length[place] = value, length
    return unroll


def record(metrics: Metrics, unroll: Unroll, report: dict[str, float], version: int) -> None:
    metrics.record(Experience.of(unroll, version), report)


def test_only_valid_steps_count_and_frames_are_steps_times_the_frame_skip() -> None:
    metrics = Metrics(frames_per_step=4)
    record(metrics, batch(invalid=5), {"loss": 1.0}, 0)
    record(metrics, batch(), {"loss": 1.0}, 1)
    line = metrics.line()
    assert (line["updates"], line["env_steps"], line["frames"]) == (2, 2 * T * N - 5, 4 * (2 * T * N - 5))


def test_returns_and_lengths_are_means_of_whole_episodes() -> None:
    metrics = Metrics(1)
    assert metrics.line()["episode_return"] is None
    assert metrics.line()["episode_length"] is None
    record(metrics, batch({(0, 0): (10.0, 5), (3, 2): (-4.0, 7)}), {}, 0)
    record(metrics, batch({(1, 1): (0.0, 9)}), {}, 1)
    line = metrics.line()
    assert (line["episodes"], line["episode_return"], line["episode_length"]) == (3, 2.0, 7.0)


def test_only_the_last_episodes_count() -> None:
    metrics = Metrics(1)
    for value in range(WINDOW + 20):
        record(metrics, batch({(0, 0): (float(value), 1)}), {}, 0)
    line = metrics.line()
    assert line["episodes"] == WINDOW + 20
    assert line["episode_return"] == np.mean(range(20, WINDOW + 20))


def test_goal_is_reached_by_a_full_window_only() -> None:
    metrics = Metrics(1)
    for _ in range(WINDOW - 1):
        record(metrics, batch({(0, 0): (5.0, 1)}), {}, 0)
    assert not metrics.reached(5.0)
    record(metrics, batch({(0, 0): (5.0, 1)}), {}, 0)
    assert metrics.reached(5.0)
    assert not metrics.reached(5.1)
    assert not metrics.reached(None)


def test_reports_and_lag_are_means_since_the_last_line() -> None:
    metrics = Metrics(1)
    record(metrics, batch(version=3), {"loss": 100.0, "entropy": 9.0}, 9)
    metrics.line()
    record(metrics, batch(version=8), {"loss": 1.0, "entropy": 0.5}, 10)
    record(metrics, batch(version=10), {"loss": 2.0, "entropy": 0.0}, 11)
    line = metrics.line()
    assert (line["loss"], line["entropy"], line["policy_lag"]) == (1.5, 0.25, 1.5)


def test_speed_and_waiting_are_measured_since_the_last_line() -> None:
    metrics = Metrics(1)
    with metrics.waiting():
        time.sleep(0.05)
    record(metrics, batch(), {}, 0)
    began = time.perf_counter()
    line = metrics.line()
    assert 0 < line["learner_waits"] <= 1
    assert 0 < line["steps_per_second"] <= T * N / 0.05
    time.sleep(0.1)
    record(metrics, batch(), {}, 1)
    line = metrics.line()
    assert line["learner_waits"] == 0
    assert line["steps_per_second"] >= 0.9 * T * N / (time.perf_counter() - began)
    assert line["steps_per_second"] <= T * N / 0.1


def test_state_goes_on_as_if_nothing_had_happened() -> None:
    one, other = Metrics(2), Metrics(2)
    record(one, batch({(0, 0): (1.0, 3)}, invalid=2), {"loss": 1.0}, 0)
    one.line()
    state = one.state()
    other.load_state(state)
    assert other.wall_seconds > state["wall_seconds"]
    for metrics in (one, other):
        record(metrics, batch({(0, 1): (3.0, 5)}), {"loss": 2.0}, 1)
    ours, theirs = one.line(), other.line()
    assert {name: value for name, value in ours.items() if name not in CLOCK} == {
        name: value for name, value in theirs.items() if name not in CLOCK
    }
    assert theirs["steps_per_second"] == pytest.approx(T * N / (time.perf_counter() - other._started), rel=0.5)


def test_experience_counts_once_however_often_it_is_learnt_from():
    metrics = Metrics(1)
    played = batch({(0, 0): (5.0, 1)})
    metrics.record(Experience.of(played, 0), {"loss": 1.0})
    once = metrics.env_steps
    metrics.record(Experience.of(played, 1, fresh=False), {"loss": 3.0})
    assert (metrics.env_steps, metrics.episodes, metrics.updates) == (once, 1, 2)
    assert metrics.line()["loss"] == 2.0
