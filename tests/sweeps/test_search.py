"""Optuna's trials: pruned, failed and tried again, continued by another process."""

from __future__ import annotations

from pathlib import Path

import pytest

from pronk.sweeps.expand import Sweep, parse_sweep

pytest.importorskip("optuna")
from pronk.sweeps.search import Search

RATE = "optimiser.learning_rate"


def sweep(trials: int, **options: object) -> Sweep:
    ranges = {RATE: {"low": 1e-4, "high": 1e-2, "log": True}, "network.hidden": {"choices": [[8], [8, 8]]}}
    tree = {"base": "catch", "sweep": {"search": ranges, "trials": trials, **options}}
    return parse_sweep(tree, "mine", "mine.yaml")


def test_a_trial_that_falls_behind_the_median_is_pruned(tmp_path: Path) -> None:
    search = Search(sweep(7, pruner="median"), tmp_path)
    for number in range(5):
        search.propose()
        assert not search.falls_behind(number, 0.5, 10.0 + number)
        search.conclude(number, 10.0, False)
    search.propose()
    assert not search.falls_behind(5, 0.01, -5.0), "too early to say"
    assert search.falls_behind(5, 0.5, -5.0)
    search.conclude(5, None, True)
    search.propose()
    assert not search.falls_behind(6, 0.5, 20.0)
    assert search.propose() == []


def test_a_killed_search_goes_on_with_the_same_trials(tmp_path: Path) -> None:
    first = Search(sweep(3, seeds=2), tmp_path)
    members = first.propose() + first.propose()
    first.conclude(0, 1.0, False)
    again = Search(sweep(3, seeds=2), tmp_path)
    assert again.known() == members
    again.conclude(0, 1.0, False)  # told before: ignored
    again.conclude(1, 2.0, False)
    (one, two) = again.propose()
    assert [one.name, two.name] == ["trial-002,seed=1", "trial-002,seed=2"]
    assert one.settings not in [member.settings for member in members]
    assert again.propose() == []


def test_a_failed_trial_is_tried_again_with_the_same_settings(tmp_path: Path) -> None:
    first = Search(sweep(2), tmp_path)
    (failed,), (fine,) = first.propose(), first.propose()
    first.conclude(0, None, False)
    first.conclude(1, 1.0, False)
    assert Search(sweep(2), tmp_path).propose() == []
    again = Search(sweep(2), tmp_path, retry=True)
    (repeated,) = again.propose()
    assert repeated.settings == failed.settings
    assert repeated.name == "trial-002"
    assert again.propose() == []
    again.conclude(2, 1.0, False)
    assert [member.name for member in Search(sweep(2), tmp_path, retry=True).known()] == [fine.name, repeated.name]
