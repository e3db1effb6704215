"""A thread that makes no progress is reported with its stack, and ended much later."""

from __future__ import annotations

import itertools
import re
import sys
import threading
import time
import traceback
from typing import Any

import pytest
from processes import wait_until

from pronk.processes import watchdog
from pronk.processes.forced_exit import in_time
from pronk.processes.watchdog import Watchdog, waits_for_user


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


def test_a_thread_that_hangs_for_long_is_ended_once_with_the_cause() -> None:
    said: list[str] = []
    ended: list[str] = []
    with Watchdog(lambda: 7, 0.05, said.append, 0.1, ended.append):
        hang_until_it_is_said(ended, 1)
        time.sleep(0.2)
    assert len(ended) == 1
    assert "(learner.timeout_seconds); it was here:\n" in ended[0]
    assert "hang_until_it_is_said" in ended[0]
    assert "the run is ended: learner.timeout_seconds); its stack:" in said[0]


def test_a_report_that_hangs_does_not_stop_the_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "REPORT_SECONDS", 0.01)
    freed = threading.Event()
    ended: list[str] = []
    with Watchdog(lambda: 7, 0.02, lambda message: void(freed.wait(60)), 0.1, ended.append):
        hang_until_it_is_said(ended, 1)
    freed.set()


def void(_: object) -> None: ...


def test_a_disk_without_answer_hides_the_lines_of_the_stack_only(monkeypatch: pytest.MonkeyPatch) -> None:
    freed = threading.Event()
    monkeypatch.setattr(watchdog, "in_time", lambda step, seconds=0.01: in_time(step, 0.01))
    monkeypatch.setattr(traceback, "format_stack", lambda frame: void(freed.wait(60)))
    said: list[str] = []
    with Watchdog(lambda: 7, 0.02, said.append):
        hang_until_it_is_said(said, 1)
    freed.set()
    assert re.search(r'\n  File ".*test_watchdog.py", line \d+, in hang_until_it_is_said\n', said[0])


@pytest.mark.parametrize("module", ["pdb", "IPython.terminal", "bdb"])
def test_a_thread_in_a_debugger_is_left_alone(module: str) -> None:
    said: list[str] = []
    inside, looks = threading.Event(), itertools.count()
    debugger: dict[str, Any] = {"__name__": module, "sleep": time.sleep, "inside": inside}
    exec("def wait(): inside.set(); sleep(0.3); inside.clear()", debugger)
    with Watchdog(lambda: 7 if inside.is_set() else next(looks), 0.02, said.append, 0.05, said.append):
        debugger["wait"]()
    assert said == []


def test_a_notebook_around_pronk_is_no_debugger() -> None:
    notebook: dict[str, Any] = {"__name__": "IPython.core"}
    training: dict[str, Any] = {"__name__": "pronk.training", "sys": sys}
    exec("def call(function): return function()", notebook)
    exec("def train(): return sys._getframe()", training)
    assert not waits_for_user(notebook["call"](training["train"]))
    assert waits_for_user(notebook["call"](sys._getframe))


def test_a_prompt_on_a_terminal_waits_for_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask() -> Any:
        return sys._getframe() if monkeypatch else input()

    monkeypatch.setattr("os.isatty", lambda descriptor: True)
    assert waits_for_user(ask())
    monkeypatch.setattr("os.isatty", lambda descriptor: False)
    assert not waits_for_user(ask())
