"""Environments that fail: who met it, where in the user's code, once, readable; and what the run does then."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import faulty
import pytest
from actors import actors_of
from processes import (
    Ended,
    Training,
    command_line,
    descendants_of,
    is_running,
    lives_of,
    names_used_by,
    read_summary,
    wait_until,
)

import pronk
from pronk.actors import processes as actor_processes
from pronk.transport import LearnerPort

ONE_ACTOR = (
    "actors.count=1",
    "actors.envs=2",
    "actors.unroll_length=20",
    "learner.batch_size=2",
    "run.total_steps=1e9",
)
HANGS = {"HangsInStep": "env.kwargs.after=100", "HangsInInit": "env.kwargs.after=1"}
FAILURES = {
    "RaisesInInit": ("the environment", "RuntimeError: no licence found"),
    "RaisesInReset": ("actor 0", "RuntimeError: the level is missing"),
    "RaisesInStep": ("actor 0", "RuntimeError: the wheel came off"),
    "WrongShape": ("actor 0", "of shape (4,), but its observation space says (3,)"),
    "WrongShapeVector": ("actor 0", "of shape (10, 4), but its observation space says (10, 5)"),
    "NanObservation": ("actor 0", "environment 0 returned nan in its observation"),
    "NanReward": ("actor 0", "environment 0 returned nan in its reward"),
}


@pytest.fixture(scope="module", autouse=True)
def hanging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Training]]:
    """They spend their time waiting, so they start before all other tests and are looked at last."""
    folder = tmp_path_factory.mktemp("hanging")
    settings = ("actors.timeout_seconds=30", "actors.max_failures=1", *ONE_ACTOR)
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(Training(folder / name, f"faulty:{name}", after, *settings))
            for name, after in HANGS.items()
        }


def run(path: Path, name: str, *overrides: str) -> Ended:
    return command_line("train", f"faulty:{name}", *ONE_ACTOR, *overrides, "--run-dir", path, "--quiet")


def assert_told_well(err: str, name: str) -> None:
    """Who failed and why, once, with the line of the user's that raised, and nothing of Pronk's own."""
    who, message = FAILURES[name]
    assert err.startswith(f"failed: {who} failed")
    assert err.count(message) == 1
    assert err.count("Traceback") <= 1
    if "Raises" in name:
        assert f'{faulty.__file__}", line {line_of(message.partition(": ")[2])}' in err
    assert len(err.splitlines()) <= 20
    assert str(Path(pronk.__file__).parent) not in err, f"Pronk's own frames:\n{err}"


def line_of(text: str) -> int:
    """Where the environments' source has it."""
    lines = Path(faulty.__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


@pytest.mark.parametrize("name", FAILURES)
def test_failure_is_told_with_its_root_cause(name: str, tmp_path: Path) -> None:
    ended = run(tmp_path / "run", name, "transport=local")
    assert ended.code == 1
    assert_told_well(ended.err, name)


def test_error_in_reset_of_an_actor_process_ends_the_run_at_once(tmp_path: Path) -> None:
    ended = run(tmp_path / "run", "RaisesInReset")
    assert ended.code == 1
    assert_told_well(ended.err, "RaisesInReset")
    assert len(lives_of(tmp_path / "run")) == 1
    summary = read_summary(tmp_path / "run")
    assert (summary["outcome"], summary["updates"]) == ("failed", 0)
    assert "the level is missing" in summary["failure"]


def test_stop_ends_the_run_at_the_first_error_though_unrolls_came_before_it(tmp_path: Path) -> None:
    ended = run(tmp_path / "run", "NanReward", "env.kwargs.after=100", "actors.on_error=stop")
    assert ended.code == 1
    assert_told_well(ended.err, "NanReward")
    assert len(lives_of(tmp_path / "run")) == 1
    assert read_summary(tmp_path / "run")["env_steps"] > 0


def test_restart_tries_again_and_ends_with_the_root_cause_of_what_keeps_failing(tmp_path: Path) -> None:
    ended = run(tmp_path / "run", "RaisesInStep", "env.kwargs.after=100", "actors.max_failures=2")
    assert ended.code == 1
    warning, told = ended.err.split("\n", 1)
    assert warning.startswith("actor 0 failed (RuntimeError: the wheel came off); restarting it")
    assert warning.endswith(str(tmp_path / "run" / "logs" / "actor-000.log"))
    assert_told_well(told, "RaisesInStep")
    assert "failed 2 times in a row" in told
    assert [life.number for life in lives_of(tmp_path / "run")] == [0, 1]


def test_environment_that_fails_rarely_is_started_again_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actor_processes, "STEADY_SECONDS", 0.0)  # else "rarely" means minutes
    with at_play(tmp_path, "faulty:RaisesInStep", "env.kwargs.after=100", "actors.max_failures=2") as port:
        for _ in range(2):
            take_until_said(port, "actor 0 failed .*the wheel came off.* restarting it")


def test_killed_actor_with_environments_in_processes_leaves_nothing_behind(tmp_path: Path) -> None:
    with at_play(tmp_path, "faulty:HangsInStep", "env.kwargs.after=30", "env.vectorization=async") as port:
        take_one(port)
        actor = lives_of(tmp_path)[0].pid
        wait_until(lambda: "hanging" in lives_of(tmp_path)[0].log, 60.0, "the hang")
        environments, names = descendants_of(actor), names_used_by(actor)
        assert len(environments) >= 2
        assert not names, "forked environments use no name in /dev/shm"
        os.kill(actor, signal.SIGKILL)
        take_until_said(port, "actor 0 failed .*SIGKILL.* restarting it")
    wait_until(lambda: not any(map(is_running, environments)), 60.0, "the end of its environments")


@pytest.mark.parametrize(("name", "method"), [("HangsInStep", "step"), ("HangsInInit", "__init__")])
def test_hang_is_found_and_its_place_shown(name: str, method: str, hanging: dict[str, Training]) -> None:
    training = hanging[name]
    assert training.wait() == 1
    training.assert_nothing_left()
    assert training.err.count("failed: actor 0 failed: no unroll for 30 s (actors.timeout_seconds)") == 1
    assert re.search(rf'faulty.py", line \d+ in {method}\n', training.err), training.err
    assert "Traceback" not in training.err


class Said(Exception):  # noqa: N818 - not an error
    """A warning, raised to get out of waiting for unrolls."""


def say(message: str) -> None:
    raise Said(message)


@contextlib.contextmanager
def at_play(path: Path, name: str, *overrides: str) -> Iterator[LearnerPort]:
    """The port of a learner that does not learn, with one real actor."""
    with actors_of(path, name, *ONE_ACTOR, *overrides, say=say) as (port, _):
        yield port


def take_one(port: LearnerPort) -> None:
    with port.unrolls(1):
        pass


def take_for_ever(port: LearnerPort) -> None:
    while True:
        take_one(port)


def take_until_said(port: LearnerPort, message: str) -> None:
    with pytest.raises(Said, match=message):
        take_for_ever(port)
