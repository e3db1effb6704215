"""Processes that measure: a failure of any is raised, and all end with their block."""

from __future__ import annotations

import os

import pytest
from forking import fresh_programs
from processes import descendants_of, is_running

from pronk.bench.workers import started
from pronk.processes.supervisor import ProcessFailed

PROGRAM = "measuring_child"
pytestmark = pytest.mark.timeout(120)


def test_the_rate_is_the_mean_of_those_that_were_asked(tmp_path):
    jobs, others = [{"rate": 10.0}, {"rate": 20.0}], descendants_of(os.getpid())
    # Fresh ones: the template that clones are made from would be among the children.
    with fresh_programs(), started("child", PROGRAM, jobs, tmp_path, print) as workers:
        assert workers.rate("part", 0.01) == 15.0
        assert workers.rate("part", 0.01, count=1) == 10.0
        children = descendants_of(os.getpid()) - others
        assert len(children) == 2
    assert not any(map(is_running, children))


def test_a_failure_at_the_start_is_raised(tmp_path):
    with (
        pytest.raises(ProcessFailed, match=r"child 1 failed: [\s\S]*the belt broke"),
        started("child", PROGRAM, [{"rate": 1.0}, {"fails": "at the start"}], tmp_path, print),
    ):
        raise AssertionError("not reached")


def test_a_process_that_dies_while_another_measures_is_noticed(tmp_path):
    """Such as the second learner of a group: the first would wait for it for ever."""
    jobs = [{"hangs": True}, {"fails": "after a while"}]
    with (
        started("child", PROGRAM, jobs, tmp_path, print) as workers,
        pytest.raises(ProcessFailed, match=r"child 1 failed: [\s\S]*the belt broke"),
    ):
        workers.rate("part", 0.01, count=1)
