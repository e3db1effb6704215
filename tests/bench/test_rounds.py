"""The limit and the advice, against figures made by hand; `tests/cli` measures a real training."""

from __future__ import annotations

import pytest

from pronk.bench.rounds import Round, limit, summary
from pronk.config import load_config, resolve

LINE = {"learner_waits": 0.0, "queue": 0.5}


def made(env=300.0, inference=600.0, learner=400.0, trained=100.0, passes=2.0, **line):
    return Round(env, inference, learner, trained, passes, LINE | line)


def figures_of(*rounds, **changes):
    config = resolve(load_config("catch")).replace(changes)
    return summary(list(rounds), cores=2, on_gpu=False, config=config)


def test_the_limit_counts_every_pass():
    assert limit(made(), 2, on_gpu=False) == pytest.approx(2 / (1 / 300 + 1 / 600 + 2 / 400))


@pytest.mark.parametrize(("learner", "expected"), [(400.0, 200.0), (4000.0, 400.0)])
def test_a_gpu_takes_nothing_from_the_cores(learner, expected):
    assert limit(made(learner=learner), 2, on_gpu=True) == pytest.approx(expected)


def test_figures_are_medians_of_the_rounds():
    figures = figures_of(made(env=100.0), made(env=900.0, trained=160.0), made(env=300.0, trained=120.0))
    assert (figures["env"], figures["trained"], figures["rounds"]) == (300.0, 120.0, 3)
    assert figures["spread"]["env"] == [100.0, 900.0]
    assert figures["limit"] == pytest.approx(limit(made(), 2, on_gpu=False))
    low, high = figures["spread"]["efficiency"]
    assert low < figures["efficiency"] < high


@pytest.mark.parametrize(
    ("slow", "hint"),
    [
        ({"env": 1.0}, "% of the work is stepping environments"),
        ({"inference": 1.0}, "% of the work is choosing actions"),
        ({"learner": 1.0}, "% of the work is learning: fewer learner.passes"),
    ],
)
def test_the_slowest_part_is_the_bottleneck(slow, hint):
    one = made(**slow)
    figures = figures_of(one._replace(trained=limit(one, 2, on_gpu=False)))
    assert figures["bottleneck"] == next(iter(slow))
    assert hint in figures["advice"]


def test_where_much_is_lost_the_advice_is_about_who_waits():
    assert "try actors.count=4" in figures_of(made(trained=1.0, learner_waits=0.5), **{"actors.count": 3})["advice"]
    assert "try actors.count=2" in figures_of(made(trained=1.0, queue=1.0), **{"actors.count": 3})["advice"]
