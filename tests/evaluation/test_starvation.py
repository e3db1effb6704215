"""The evaluator has a low priority, unless that would mean that it never plays."""

import os
import subprocess
import sys
import threading

import pytest

from pronk.evaluation import evaluator_process
from pronk.evaluation.evaluator_process import StarvationWatch, StarvedError
from pronk.processes.priority import NICENESS

PROGRAM = """
import os, threading
from concurrent.futures import ThreadPoolExecutor
from pronk.evaluation import evaluator_process
from pronk.evaluation.evaluator_process import played_in_time
from pronk.processes.priority import lower_priority

usual = ThreadPoolExecutor(1)
usual.submit(os.getpid).result()
lower_priority(10)
evaluator_process.PATIENCE_SECONDS = 0.0
times = 0

def play(watch):
    global times
    times += 1
    watch()
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

print(played_in_time(play, usual, urgent=False), times)
print(played_in_time(play, usual, urgent=True), times)
waits = iter(range(0, 10**6, 100))
evaluator_process.waited_for_a_core = lambda: next(waits)  # each time a hundred seconds more
print(played_in_time(play, usual, urgent=False), times)
"""


def test_a_starved_or_urgent_evaluation_has_the_usual_priority():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100, check=True)
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    low = min(19, usual + NICENESS)
    first, second, note, third = done.stdout.splitlines()
    assert (first, second) == (f"{low} 1", f"{usual} 2")
    assert note.endswith("beginning again at the usual priority")
    assert third == f"{usual} 4"


def test_waiting_for_something_else_than_a_core_is_no_starvation(monkeypatch):
    monkeypatch.setattr(evaluator_process, "PATIENCE_SECONDS", 0.2)
    watch = StarvationWatch()
    threading.Event().wait(0.5)
    watch.check()


def test_starvation_is_found_from_what_the_system_says(monkeypatch):
    monkeypatch.setattr(evaluator_process, "PATIENCE_SECONDS", 0.0)
    waits = iter([0.0, 100.0])
    monkeypatch.setattr(evaluator_process, "waited_for_a_core", lambda: next(waits))
    watch = StarvationWatch()
    threading.Event().wait(0.01)
    with pytest.raises(StarvedError):
        watch.check()
