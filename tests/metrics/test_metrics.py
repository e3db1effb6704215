"""Counters add up, means are of what came since the last line, and what was not there is None."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from pronk.layout import UnrollLayout
from pronk.metrics import Experience, Metrics
from pronk.metrics.returns import EPISODES
from pronk.types import ActionSpec, ArraySpec, EnvSpec, Unroll, map_unroll, unroll_specs

T, N = 4, 3
CLOCK = ("wall_seconds", "steps_per_second", "learner_waits")


def batch(ended: dict[tuple[int, int], tuple[float, int]] | None = None, invalid: int = 0, version: int = 0) -> Unroll:
    """An unroll in which some episodes end: at (t, n), with a return and a length."""
    unroll = UnrollLayout(unroll_specs(EnvSpec(ArraySpec((), "float32"), ActionSpec((), (2,))), {}, T, N)).allocate()
    unroll.valid[:] = True
    unroll.valid.reshape(-1)[:invalid] = False
    unroll.version[:] = version
    unroll.environment[:] = np.arange(N)
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


def test_only_the_last_episodes_count_and_each_environment_as_much_as_any_other() -> None:
    metrics = Metrics(1)
    for value in range(EPISODES):
        ended = {(t, 0): (float(value), 1) for t in range(T)} | {(0, 1): (float(value), 1), (1, 2): (-5.0, 1)}
        record(metrics, batch(ended), {}, 0)
    line = metrics.line()
    most = math.ceil(EPISODES / N)
    assert line["episodes"] == (T + 2) * EPISODES
    quick, slow = np.repeat(range(EPISODES), T)[-most:], range(EPISODES)[-most:]
    assert line["episode_return"] == pytest.approx((np.mean(quick) + np.mean(slow) - 5.0) / 3)


def test_goal_is_reached_by_a_full_window_only() -> None:
    metrics = Metrics(1)
    everyone = {(0, n): (0.1, 1) for n in range(N)}
    for _ in range(math.ceil(EPISODES / N) - 1):
        record(metrics, batch(everyone), {}, 0)
    assert not metrics.reached(0.1)
    record(metrics, batch(everyone), {}, 0)
    assert metrics.reached(np.float32(0.1))
    assert not metrics.reached(0.11)
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
    began = time.perf_counter()
    one, other = Metrics(2), Metrics(2)
    record(one, batch({(0, 0): (1.0, 3)}, invalid=2), {"loss": 1.0}, 0)
    one.line()
    state = one.state()
    other.load_state(state)
    loaded = time.perf_counter()
    assert other.wall_seconds > state["wall_seconds"]
    for metrics in (one, other):
        record(metrics, batch({(0, 1): (3.0, 5)}), {"loss": 2.0}, 1)
    ours, before = one.line(), time.perf_counter()
    theirs, after = other.line(), time.perf_counter()
    assert {name: value for name, value in ours.items() if name not in CLOCK} == {
        name: value for name, value in theirs.items() if name not in CLOCK
    }
    rounding = 0.1
    assert T * N / (after - began) - rounding <= theirs["steps_per_second"] <= T * N / (before - loaded) + rounding


def test_experience_counts_once_however_often_it_is_learnt_from():
    metrics = Metrics(1)
    played = batch({(0, 0): (5.0, 1)})
    metrics.record(Experience.of(played, 0), {"loss": 1.0})
    once = metrics.env_steps
    metrics.record(Experience.of(played, 1, np.zeros(N, bool)), {"loss": 3.0})
    assert (metrics.env_steps, metrics.episodes, metrics.updates) == (once, 1, 2)
    assert metrics.line()["loss"] == 2.0


def test_of_a_batch_that_mixes_fresh_and_replayed_columns_only_the_fresh_ones_count():
    mixed = batch({(0, 0): (5.0, 1), (1, 2): (7.0, 2)}, invalid=1)
    mixed.version[:] = [9, 3, 8]
    experience = Experience.of(mixed, 10, np.array([True, False, True]))
    assert (experience.steps, experience.ended) == (2 * T - 1, 2)
    assert [environment for environment, *_ in experience.columns] == [0, 2]
    metrics = Metrics(1)
    metrics.record(experience, {})
    metrics.record(Experience.of(mixed, 10, np.array([False, True, True])), {})
    line = metrics.line()
    assert (line["env_steps"], line["episodes"]) == (4 * T - 1, 3)
    assert (line["policy_lag"], line["replay_lag"]) == ((1 + 2 + 7 + 2) / 4, (7 + 1) / 2)


def test_several_learners_count_like_one_with_all_columns():
    ended = {(0, 0): (5.0, 1), (1, 2): (7.0, 2)}
    parts = []
    for rank, fresh in enumerate(([True, False, True], [False, False, True])):
        part = batch(ended, version=rank)
        part.environment[:] += 100 * rank
        parts.append((part, np.array(fresh)))
    whole = map_unroll(
        lambda one, other: np.concatenate([one, other], axis=min(one.ndim - 1, 1)), *(p for p, _ in parts)
    )
    merged = Experience.merged([Experience.of(part, 5, fresh) for part, fresh in parts])
    assert merged == Experience.of(whole, 5, np.concatenate([fresh for _, fresh in parts]))


def test_episodes_say_whose_task_they_were():
    unroll = batch({(0, 0): (5.0, 1), (1, 2): (7.0, 2)})
    unroll.task[:] = [4, 5, 6]
    experience = Experience.of(unroll, 0)
    assert [(task, value) for _, task, value, _ in experience.episodes] == [(4, 5.0), (6, 7.0)]
    assert [task for _, task, *_ in experience.columns] == [4, 5, 6]


def test_a_line_of_further_passes_only_keeps_the_lag_of_the_line_before() -> None:
    metrics = Metrics(frames_per_step=1)
    record(metrics, batch(version=3), {"loss": 1.0}, 8)
    assert metrics.line()["policy_lag"] == 5.0
    metrics.record(Experience.of(batch(version=3), 9, np.zeros(N, bool)), {"loss": 1.0})
    line = metrics.line()
    assert (line["policy_lag"], line["replay_lag"]) == (5.0, 6.0)
