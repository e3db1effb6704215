"""A thread that makes no progress is reported with its stack."""

from __future__ import annotations

import itertools
import time

import pytest
from processes import wait_until

from pronk.processes import watchdog
from pronk.processes.watchdog import Watchdog


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "TICK_SECONDS", 0.01)


def hang_until_it_is_said(said: list[str], count: int) -> None:
    wait_until(lambda: len(said) >= count, 60, "a report")


def test_no_progress_is_reported_with_the_stack_and_less_and_less_often() -> None:
    said: list[str] = []
    with Watchdog(lambda: 7, 0.05, said.append):
        hang_until_it_is_said(said, 3)
    assert "hang_until_it_is_said" in said[0]
    assert said[0].startswith("the learner has made no progress for 0 s; its stack:\n")
    count = len(said)
    time.sleep(0.1)
    assert len(said) == count, "the block is left"


def test_a_thread_that_works_or_may_pause_is_not_reported() -> None:
    said: list[str] = []
    looks = itertools.count()
    with Watchdog(lambda: next(looks), 0.02, said.append):
        time.sleep(0.3)
    pausing = Watchdog(lambda: 7, 0.02, said.append)
    pausing.is_watching = False
    with pausing:
        time.sleep(0.3)
    assert said == []
