"""A process whose main thread hangs can be ended from another one, whatever hangs with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import types

import pytest
from processes import wait_until

from pronk.processes import forced_exit

# Writing the record never ends, nor would the child.
HANGING = """
import os, sys, tempfile, threading, time
from pathlib import Path
from pronk.processes import child, forced_exit
from pronk.processes.messages import Run

forced_exit.STEP_SECONDS = 1.0
log = Path(tempfile.mkdtemp()) / "log"
process, channel = child.start(Run("child", "tiny_child", {"do": "hang silently"}, 0, os.getpid()), log)
while "child starts" not in log.read_text():
    time.sleep(0.05)
print(process.pid, flush=True)
end = getattr(forced_exit, sys.argv[1])
more = [lambda: time.sleep(1e6)] if sys.argv[1] == "end" else []
threading.Thread(target=lambda: end("the wheel is stuck", *more)).start()
time.sleep(1e6)
"""

# As the first process of a container, for which Linux ignores SIGKILL from itself.
FIRST = """
import os
from pronk.processes import forced_exit

kill = os.kill
os.kill = lambda pid, number: None if pid == os.getpid() else kill(pid, number)
forced_exit.end_to_be_restarted("the wheel is stuck")
"""


@pytest.mark.parametrize(
    ("how", "code", "says"), [("end", 1, "failed: "), ("end_to_be_restarted", -signal.SIGKILL, "")]
)
def test_the_cause_is_printed_and_children_end_although_everything_hangs(how: str, code: int, says: str) -> None:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", HANGING, how], capture_output=True, text=True, timeout=120, env=env)
    assert ended.returncode == code
    assert ended.stderr == f"{says}the wheel is stuck\n"

    def is_gone() -> bool:
        try:
            os.kill(int(ended.stdout), 0)
        except ProcessLookupError:
            return True
        return False

    wait_until(is_gone, 30, "the end of its child")


def test_the_first_process_of_a_container_ends_too() -> None:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, timeout=60, env=env)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGKILL, "the wheel is stuck\n")


def test_a_step_has_limited_time_and_its_errors_are_ignored() -> None:
    freed = threading.Event()
    assert not forced_exit.in_time(lambda: freed.wait(60), 0.01)
    freed.set()
    assert forced_exit.in_time(lambda: 1 / 0)


def test_only_commands_are_ended_and_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    assert not forced_exit.is_allowed()
    with forced_exit.allowed():
        with forced_exit.allowed():
            pass
        assert forced_exit.is_allowed()
        monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
        assert not forced_exit.is_allowed()
    assert not forced_exit.is_allowed()
