"""Environments in processes: what they raise, how they die and hang, and that nothing of them is left."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import Process, descendants_of, is_running, left_in_shared_memory, names_in_shared_memory, wait_until
from scripted import Clock

from pronk.envs import async_vector
from pronk.envs.async_vector import AsyncVector
from pronk.types import UserError

SEEDS = [5, 6, 7]


class Trouble(Clock):
    """The one with seed 6 misbehaves in its third step; all of them do where the kind says so."""

    examples = 0

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind, self._played = kind, 0
        Trouble.examples += 1  # a process that is forked later inherits the count
        if kind == "raises in init" and Trouble.examples > 1:
            raise RuntimeError("no licence found")

    def step(self, action: Any) -> Any:
        self._played += 1
        if self._seed == 6 and self._played == 3:
            self._misbehave()
        return super().step(action)

    def _misbehave(self) -> None:
        match self._kind:
            case "raises":
                raise RuntimeError("the wheel came off")
            case "exits":
                os._exit(3)
            case "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hangs":
                time.sleep(3600)

    def close(self) -> None:
        if self._kind == "does not close" and self._played:
            time.sleep(3600)
        super().close()


@pytest.fixture(autouse=True)
def nothing_left():
    """No process, zombie or name in /dev/shm outlives a test."""
    Trouble.examples = 0
    processes, names = descendants_of(os.getpid()), names_in_shared_memory()
    yield
    assert descendants_of(os.getpid()) <= processes
    assert not left_in_shared_memory(names)


def play(kind: str, steps: int, timeout: float = 60.0) -> set[Process]:
    """Play, close, and return the processes of the environments."""
    before = descendants_of(os.getpid())
    env = AsyncVector(partial(Trouble, kind), len(SEEDS), timeout)
    processes = descendants_of(os.getpid()) - before
    try:
        env.reset(SEEDS)
        for _ in range(steps):
            env.step(np.zeros(len(SEEDS), np.int64))
    finally:
        env.close()
    return processes


def test_well_behaved_environments_play_and_end():
    processes = play("none", 50)
    assert len(processes) >= len(SEEDS)
    assert not any(map(is_running, processes))


def test_an_error_names_its_environment_and_the_line_that_raised():
    with pytest.raises(RuntimeError) as caught:
        play("raises", 10)
    headline, *frames = str(caught.value).splitlines()
    assert headline == "environment 1 raised RuntimeError: the wheel came off"
    assert frames[0] == "Traceback (most recent call last):"
    assert Path(__file__).name in frames[1]
    assert "_misbehave" in str(caught.value)
    assert str(Path(async_vector.__file__).parent) not in str(caught.value), "frames of Pronk's own"


def test_an_error_while_it_is_made_is_raised_where_the_vector_is_made():
    with pytest.raises(RuntimeError, match=r"environment 0 raised RuntimeError: no licence found\n"):
        play("raises in init", 0)


@pytest.mark.parametrize(("kind", "reason"), [("exits", "exit code 3"), ("is killed", "killed by SIGKILL")])
def test_a_process_that_dies_is_named_with_its_exit_code(kind, reason):
    with pytest.raises(RuntimeError, match=f"the process of environment 1 died: {reason}"):
        play(kind, 10)


def test_an_environment_that_hangs_is_named_with_its_stack(monkeypatch):
    monkeypatch.setattr(async_vector, "CLOSE_SECONDS", 0.3)
    with pytest.raises(TimeoutError) as caught:
        play("hangs", 10, timeout=1.0)
    headline, *stack = str(caught.value).splitlines()
    assert headline == "environment 1 did not answer for 1 s; it was here:"
    assert any("in _misbehave" in line and Path(__file__).name in line for line in stack)


def test_an_environment_that_does_not_close_is_ended(monkeypatch):
    monkeypatch.setattr(async_vector, "CLOSE_SECONDS", 0.3)
    processes = play("does not close", 1)
    assert len(processes) >= len(SEEDS)
    assert not any(map(is_running, processes))


class OldStep(Clock):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated or truncated, info


def test_a_mistake_of_the_user_stays_one():
    env = AsyncVector(OldStep, 2, 60.0)
    env.reset([1, 2])
    with pytest.raises(UserError, match=r"OldStep has the API of the old gym package.*step\(\) returned 4 values"):
        env.step(np.zeros(2, np.int64))
    env.close()


PROGRAM = """
import sys, time
sys.path[:] = {path!r}
import numpy as np
from scripted import Clock
from pronk.envs.async_vector import AsyncVector
env = AsyncVector(Clock, 3, 60.0)
env.reset([1, 2, 3])
print("playing", flush=True)
while True:
    env.step(np.zeros(3, np.int64))
"""


def test_environments_end_with_the_process_that_made_them():
    with subprocess.Popen([sys.executable, "-c", PROGRAM.format(path=sys.path)], stdout=subprocess.PIPE) as program:
        assert program.stdout.readline() == b"playing\n"
        environments: set[Process] = descendants_of(program.pid)
        assert len(environments) == 3
        program.kill()
    wait_until(lambda: not any(map(is_running, environments)), 5.0, "the end of the environments")
