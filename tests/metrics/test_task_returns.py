"""Returns of several tasks: each has its own estimate, and the same weight in the mean."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pronk.evaluation.atari_scores import human_normalised_summary, references
from pronk.evaluation.playing import Evaluation, together
from pronk.layout import UnrollLayout
from pronk.metrics import Experience, Metrics
from pronk.metrics.returns import CONFIRMED, EPISODES, Column, Returns
from pronk.metrics.task_returns import TaskReturns
from pronk.types import ActionSpec, ArraySpec, EnvSpec, unroll_specs

NAMES = ("short", "long")
STEPS = 10


def column(environment: int, task: int) -> Column:
    return (environment, task, True, True)


def played(returns: TaskReturns, task: int, environment: int, *values: float) -> None:
    episodes = [(environment, task, value, STEPS // len(values)) for value in values]
    returns.record([column(environment, task)], episodes, STEPS)


def test_there_is_no_mean_before_every_task_has_an_episode() -> None:
    returns = TaskReturns(NAMES)
    played(returns, 0, 0, 1.0, 3.0)
    assert returns.estimate() is None
    assert returns.std() is None
    assert [each and each.value for each in returns.estimates()] == [2.0, None]
    played(returns, 1, 1, 100.0)
    estimate = returns.estimate()
    assert estimate is not None
    assert (estimate.value, estimate.length, estimate.episodes, estimate.full) == (51.0, 7.5, 3, False)
    assert returns.std() == pytest.approx(np.sqrt((1.0 + 0.0) / 2))


def test_a_task_with_more_episodes_weighs_no_more_and_all_must_be_full() -> None:
    returns = TaskReturns(NAMES)
    for _ in range(EPISODES):
        played(returns, 0, 0, 1.0)
    played(returns, 1, 1, 3.0)
    estimate = returns.estimate()
    assert estimate is not None
    assert (estimate.value, estimate.full) == (2.0, False)
    for _ in range(EPISODES):
        played(returns, 1, 1, 3.0)
    estimate = returns.estimate()
    assert estimate is not None
    assert estimate.full


def test_one_task_is_counted_and_saved_as_ever() -> None:
    several, single = TaskReturns(["default"]), Returns()
    for value in (1.0, 2.0, 3.0):
        played(several, 0, 0, value)
        single.record([column(0, 0)], [(0, 0, value, STEPS)], STEPS)
    assert several.estimate() == single.estimate()
    assert several.state() == single.state()
    restored = TaskReturns(["default"])
    restored.load_state(single.state())
    assert restored.estimate() == single.estimate()


def test_the_state_is_kept_by_name() -> None:
    returns, restored = TaskReturns(NAMES), TaskReturns(tuple(reversed(NAMES)))
    played(returns, 0, 0, 1.0)
    played(returns, 1, 1, 5.0)
    restored.load_state(json.loads(json.dumps(returns.state())))
    assert [each and each.value for each in restored.estimates()] == [5.0, 1.0]


def test_weights_are_confirmed_when_they_are_in_every_task() -> None:
    returns = TaskReturns(NAMES)
    played(returns, 0, 0, 1.0)
    played(returns, 1, 1, 1.0)
    confirmation = returns.confirmation()
    for _ in range(CONFIRMED + 1):
        confirmation.record([column(0, 0)], [(0, 0, 4.0, STEPS)], STEPS)
    assert confirmation.estimates() is None
    for _ in range(CONFIRMED + 1):  # as JSON, from another learner
        confirmation.record(*json.loads(json.dumps(([column(1, 1)], [(1, 1, 6.0, STEPS)]))), STEPS)
    assert [each.value for each in confirmation.estimates() or []] == [4.0, 6.0]
    assert confirmation.steps == 2 * (CONFIRMED + 1) * STEPS


# ---- metrics


def experience(values: dict[int, float]) -> Experience:
    """A batch of two columns, one of each task, in which episodes end at some steps."""
    spec = EnvSpec(ArraySpec((), "float32"), ActionSpec((), (2,)), tasks=NAMES)
    unroll = UnrollLayout(unroll_specs(spec, {}, 4, 2)).allocate()
    unroll.valid[:] = True
    unroll.task[:] = unroll.environment[:] = np.arange(2)
    unroll.first[[0, -1]] = True
    unroll.episode_return[:] = np.nan
    for task, value in values.items():
        unroll.episode_return[3, task], unroll.episode_length[3, task] = value, 4
    return Experience.of(unroll, 0)


def test_a_line_of_metrics_has_the_return_of_each_task() -> None:
    metrics = Metrics(1, NAMES, lambda values: {"known": float(sum(value is not None for value in values))})
    metrics.record(experience({0: 2.0}), {"loss": 1.0})
    line = metrics.line()
    assert (line["episode_return"], line["episode_return/short"], line["episode_return/long"]) == (None, 2.0, None)
    metrics.record(experience({0: 4.0, 1: 10.0}), {"loss": 1.0})
    line = metrics.line()
    assert (line["episode_return"], line["episode_return/short"], line["episode_return/long"]) == (6.5, 3.0, 10.0)
    assert line["known"] == 2.0
    restored = Metrics(1, NAMES)
    restored.load_state(json.loads(json.dumps(metrics.state())))
    assert restored.line()["episode_return/long"] == 10.0


def test_one_task_has_no_column_of_its_own() -> None:
    assert not [name for name in Metrics(1).line() if "/" in name]


def test_a_confirmed_return_of_an_earlier_version_is_read() -> None:
    metrics = Metrics(1)
    metrics.load_state(metrics.state() | {"confirmed": (7.0, 3.0, 30, True)})
    assert metrics.episode_return == 7.0


# ---- scores


def test_human_normalised_scores_of_several_games() -> None:
    pong, breakout = references()["pong"], references()["breakout"]
    scores = [pong.human, breakout.random + 3 * (breakout.human - breakout.random), 5.0]
    found = human_normalised_summary(["pong", "breakout", None], scores)
    assert found == pytest.approx(
        {"human_normalised": 2.0, "human_normalised_median": 2.0, "human_normalised_capped": 1.0}
    )
    assert human_normalised_summary(["pong", "breakout"], [1.0, None]) == {}
    assert human_normalised_summary([None, "no_such_game"], [1.0, 2.0]) == {}


def test_the_mean_of_an_evaluation_is_over_the_tasks() -> None:
    many, few = Evaluation([1.0, 3.0] * 10, [5] * 20, "pong"), Evaluation([100.0, 104.0], [9, 9], "breakout")
    summary = together({"many": many, "few": few}).summary()
    assert (summary["mean"], summary["episodes"], summary["mean_length"]) == (52.0, 22, 7.0)
    assert (summary["min"], summary["max"]) == (1.0, 104.0)
    variances = [np.var(one.returns, ddof=1) for one in (many, few)]
    assert summary["std"] == pytest.approx(np.sqrt(np.mean(variances)))
    half = 1.96 * np.sqrt(variances[0] / 20 + variances[1] / 2) / 2
    assert summary["interval"] == pytest.approx([52.0 - half, 52.0 + half])
    assert list(summary["tasks"]) == ["many", "few"]
    assert summary["tasks"]["few"] == few.summary()
    assert summary["human_normalised"] == pytest.approx(
        np.mean([summary["tasks"][name]["human_normalised"] for name in summary["tasks"]])
    )
