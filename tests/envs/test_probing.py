"""An environment is tried in a process of its own: whatever it does there, the user is told and nothing is left."""

import dataclasses
import json
import os
import subprocess
import sys
import time

import pytest

from pronk.config import load_config
from pronk.envs import probe_spec, probing
from pronk.envs.probing import as_plain, is_well_behaved, spec_from, spec_of
from pronk.types import Failure, UserError


def config_of(name, *overrides):
    return load_config(name, ["transport=shared_memory", *overrides])


def is_gone(pid):
    """Whether a process has ended; one that nobody has waited for is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("SegfaultsInInit", "the environment ended its process: killed by SIGSEGV"),
        ("ExitsInInit", "the environment ended its process: exit code 0"),
        ("CallsSysExit", "the environment ended its process: exit code 0"),
        ("RaisesInInit", "the environment failed: .*no licence found"),
    ],
)
def test_an_environment_that_ends_or_fails_is_reported(name, said):
    with pytest.raises(Failure, match=f"(?s)^{said}"):
        spec_of(config_of(f"faulty:{name}"))


def test_a_crash_shows_where_it_was():
    with pytest.raises(Failure, match=r"(?s)SIGSEGV.*faulty.py"):
        spec_of(config_of("faulty:SegfaultsInInit"))


def test_mistakes_stay_one_line():
    with pytest.raises(
        UserError, match=r"^env.id: faulty neither has nor registers 'Coridor' \(did you mean 'Corridor'"
    ):
        spec_of(config_of("faulty:Coridor"))


def test_a_hang_is_reported_even_where_python_is_not_in_control(monkeypatch):
    monkeypatch.setattr(probing, "GRACE_SECONDS", 0.5)
    with pytest.raises(Failure, match=r"(?s)longer than 0.5 s \(actors.timeout_seconds\).*faulty.py"):
        spec_of(config_of("faulty:HangsInNativeCode", "actors.timeout_seconds=0.5"))


def test_a_slow_close_is_reported_and_cut_short(monkeypatch):
    monkeypatch.setattr(probing, "CLOSE_SECONDS", 0.5)
    said, began = [], time.monotonic()
    assert spec_of(config_of("faulty:SlowToClose"), said.append).action.choices == (2,)
    assert time.monotonic() - began < 30
    assert said == ["the environment takes more than 0.5 s to close; its process is ended without that"]


def test_processes_of_the_environment_are_ended(tmp_path):
    spec_of(config_of("faulty:LeavesChild", f"env.kwargs.file={tmp_path / 'numbers'}"))
    numbers = (tmp_path / "numbers").read_text().split()
    assert numbers
    deadline = time.monotonic() + 10
    while not all(is_gone(number) for number in numbers):  # killed, which the kernel may take a moment for
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_spec_is_the_same_as_in_this_process():
    for name in ("faulty:Corridor", "own_parts:Halves", "own_parts:Album"):
        config = config_of(name)
        assert not is_well_behaved(config.env)
        assert spec_of(config) == probe_spec(config)


@pytest.mark.parametrize("name", ["CartPole-v1", "catch", "FrozenLake-v1", "ALE/Pong-v5"])
def test_known_environments_start_no_process(name, monkeypatch):
    monkeypatch.setattr(probing, "probe_in_child", lambda config, say: pytest.fail("a process for this"))
    if name != "ALE/Pong-v5":
        spec_of(config_of(name))
    assert is_well_behaved(load_config(name).env)


def test_what_is_sent_is_what_comes():
    for name in ("CartPole-v1", "own_parts:Halves"):
        spec = dataclasses.replace(probe_spec(load_config(name)), tasks=("a", "b"), info=("score",), notes=("resized",))
        assert spec_from(json.loads(json.dumps(as_plain(spec)))) == spec


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [("SegfaultsInInit", 1, "SIGSEGV"), ("ExitsInInit", 1, "exit code 0"), ("LeavesThread", 0, "")],
)
def test_the_command_ends_and_says_why(name, code, said, tmp_path):
    settings = ["run.total_steps=256", "actors.count=1", "actors.envs=4", "learner.batch_size=4", "network.hidden=[8]"]
    support = os.path.join(os.path.dirname(__file__), "..", "support")
    done = subprocess.run(
        [sys.executable, "-m", "pronk", "train", f"faulty:{name}", *settings, "--quiet"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([support, *sys.path])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "child.py" not in done.stderr


def test_a_slow_environment_is_measured():
    spec = probe_spec(config_of("faulty:Slow"))
    assert spec.step_seconds >= 0.003
    assert spec.reset_seconds >= 0.11
    assert spec_from(as_plain(spec)).step_seconds == spec.step_seconds
