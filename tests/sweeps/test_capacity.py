"""How many members run at a time, and with how many cores each; what their results come to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pronk.config import load_config
from pronk.sweeps import capacity
from pronk.sweeps.expand import Member
from pronk.sweeps.report import groups_of
from pronk.sweeps.running import Record, time_left


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: Any) -> None:
    monkeypatch.setattr(capacity, "available_cores", lambda: 8)
    monkeypatch.setattr(capacity, "MEMORY", 1)


@pytest.mark.parametrize(
    ("overrides", "members", "at_a_time", "expected"),
    [
        (["transport=local"], 100, None, (8, 1)),
        (["actors.count=4"], 100, None, (2, 4)),
        (["actors.count=9"], 100, None, (1, None)),
        ([], 100, None, (8, 1)),
        ([], 2, None, (2, 4)),
        ([], 100, 3, (3, 2)),
        (["transport=local"], 1, 5, (1, None)),
    ],
)
def test_the_cores_are_shared_out(overrides: list[str], members: int, at_a_time: int | None, expected: Any) -> None:
    found = capacity.local_capacity([load_config("catch", overrides)], members, at_a_time)
    assert (found.at_a_time, found.cores) == expected


def test_automatic_numbers_of_actors_and_threads_fit_the_share() -> None:
    config = capacity.with_cores(load_config("catch"), 2)
    assert (config.actors.count, config.learner.threads) == (2, 1)
    config = capacity.with_cores(load_config("catch", ["actors.count=1"]), 4)
    assert (config.actors.count, config.learner.threads) == (1, 3)
    wide = load_config("catch", ["learner.batch_size=64", "actors.envs=16", "actors.slots=2"])
    assert capacity.with_cores(wide, 1).actors.count == "auto"  # one actor could not fill a batch
    assert capacity.with_cores(load_config("catch", ["transport=local"]), 4).actors.count == "auto"


def record(rate: float, seed: int, state: str, value: float | None, **more: Any) -> Record:
    member = Member(f"{rate},{seed}", {"optimiser.learning_rate": rate}, seed, load_config("catch"))
    return Record(member, Path(member.name), state, value=value, **more)


def test_groups_are_over_seeds_and_the_best_is_first() -> None:
    records = [
        record(0.1, 1, "finished", 1.0),
        record(0.1, 2, "solved", 3.0),
        record(0.2, 1, "finished", 5.0),
        record(0.2, 2, "failed", 9.0),
        record(0.3, 1, "failed", None),
    ]
    groups = groups_of(records)
    assert [group.label for group in groups] == ["learning_rate=0.2", "learning_rate=0.1", "learning_rate=0.3"]
    assert [(group.runs, group.mean, group.interval) for group in groups] == [
        (2, 5.0, (5.0, 5.0)),
        (2, 2.0, (1.0, 3.0)),
        (1, None, None),
    ]
    low, high = groups[1].iqm[1:]
    assert 1.0 <= low <= groups[1].iqm.value <= high <= 3.0


def test_time_left_is_of_all_members() -> None:
    records = [record(0.1, 1, "finished", 1.0, lasted=10.0), record(0.1, 2, "waiting", None)]
    assert time_left(records, 1, 2) == 10.0
    assert time_left(records, 2, 4) == 15.0
    assert time_left([record(0.1, 1, "waiting", None)], 1, 1) is None
