"""The short form of the chaos suite (`make chaos`): a few faults, seeded, against real runs."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from faults import LIVE
from trials import kills, live, sample

pytestmark = pytest.mark.timeout(600)
CHEAP = ("kill -9 of an actor", "SIGSTOP and SIGCONT of the learner", "no descriptors left, and an actor dies")


def test_a_run_goes_on_and_learns_through_faults(tmp_path: Path) -> None:
    faults = [fault for fault in LIVE if fault.kind in CHEAP]
    for result in live("shared memory", faults, tmp_path, random.Random(1)):
        assert result.is_good, result


def test_a_killed_learner_goes_on_where_its_checkpoint_is(tmp_path: Path) -> None:
    for result in kills(1, tmp_path, random.Random(3)):
        assert result.is_good, result


def test_every_kind_of_fault_comes_before_any_comes_again() -> None:
    pairs = sum(len(fault.where) for fault in LIVE)
    dealt = sample(pairs, random.Random(1))
    assert sum(map(len, dealt.values())) == pairs
    assert all(len({fault.kind for fault in faults}) == len(faults) for faults in dealt.values())
