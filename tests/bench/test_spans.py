"""A training divided into spans, by a clock made by hand; and the configuration of such a training."""

from __future__ import annotations

import json

import pytest

from pronk.bench.spans import Stopwatch, all_actors_play, without_end
from pronk.config import load_config


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("pronk.bench.spans.time.perf_counter", lambda: now[0])
    return now


def line(steps, updates=0, lag=0.0):
    return {"env_steps": steps, "updates": updates, "policy_lag": lag}


def test_a_span_begins_after_the_warm_up_and_counts_from_there(clock):
    watch = Stopwatch(seconds=2.0, warm_up=1.0)
    assert watch.span(line(500)) is None  # the warm-up begins
    clock[0] += 1.0
    assert watch.span(line(1000, 10)) is None  # the span begins
    clock[0] += 1.0
    assert watch.span(line(1300, 13, lag=2.0)) is None
    clock[0] += 1.0
    span = watch.span(line(1400, 14, lag=6.0))
    assert (span.seconds, span.steps, span.updates, span.rate) == (2.0, 400, 4, 200.0)
    assert span.lag == (300 * 2 + 100 * 6) / 400


def test_a_span_without_a_step_goes_on(clock):
    watch = Stopwatch(seconds=1.0, warm_up=0.0)
    watch.span(line(100))
    watch.span(line(100))
    clock[0] += 5.0
    assert watch.span(line(100, 5, lag=None)) is None
    clock[0] += 5.0
    assert watch.span(line(150, 6)).rate == 5.0


def test_a_pause_is_in_no_span(clock):
    watch = Stopwatch(seconds=1.0, warm_up=0.0)
    watch.span(line(0))
    watch.span(line(0))
    clock[0] += 1.0
    assert watch.span(line(10)).rate == 10.0
    clock[0] += 60.0
    watch.restart(settle=0.5)
    assert watch.span(line(10)) is None
    clock[0] += 0.5
    assert watch.span(line(20)) is None
    clock[0] += 1.0
    assert watch.span(line(40)).rate == 20.0


def test_the_warm_up_waits_until_the_training_is_ready(clock):
    ready = [False]
    watch = Stopwatch(seconds=1.0, warm_up=0.0, ready=lambda: ready[0])
    watch.span(line(0))
    clock[0] += 10.0
    assert watch.span(line(1000)) is None
    ready[0] = True
    assert watch.span(line(2000)) is None
    clock[0] += 1.0
    assert watch.span(line(2100)).rate == 100.0


def test_actors_play_once_each_has_delivered(tmp_path):
    assert not all_actors_play(tmp_path)
    (tmp_path / "logs").mkdir()
    for unrolls, expected in [([1, 0], False), ([1, 2], True)]:
        actors = {"actors": [{"unrolls": count} for count in unrolls]}
        (tmp_path / "logs" / "actors.json").write_text(json.dumps(actors))
        assert all_actors_play(tmp_path) is expected


def test_a_measured_training_does_not_end_by_itself_and_reports_to_nobody():
    ends = ["run.stop_return=1", "run.total_steps=100", "run.total_seconds=1", "run.pause_steps=50"]
    extras = ["run.sinks=[wandb]", "run.video=true", "run.clip_every_steps=10", "run.profile_seconds=1"]
    run = without_end(load_config("catch", [*ends, *extras])).run
    assert (run.stop_return, run.total_seconds, run.pause_steps, run.total_steps) == (None, None, None, 10**12)
    assert (run.sinks, run.video, run.clip_every_steps, run.profile_seconds) == ([], False, None, 0.0)
