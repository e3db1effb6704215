"""`pronk sweep`: a broken member, Ctrl-C, kill -9, a search; always two at a time."""

from __future__ import annotations

import json
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from processes import SIZES, Training, assert_monotone, read_metrics, read_summary

from pronk.config import plain_yaml
from pronk.runs.directory import RunDirectory
from pronk.sweeps.expand import Settings

pytestmark = pytest.mark.timeout(240)
SMALL: Settings = dict(setting.split("=") for setting in SIZES)
COMMON = {"base": "catch", "transport": "local", "run.stop_return": None, "run.log_every_seconds": 0.1}


def write(file: Path, fixed: Settings, **options: Any) -> str:
    numbers = {key: plain_yaml.parse(value) for key, value in SMALL.items()}
    file.write_text(plain_yaml.dump({**COMMON, **numbers, **fixed, "sweep": {"at_a_time": 2, **options}}))
    return str(file)


def start(path: Path, *arguments: str) -> Training:
    return Training(path, *arguments, command="sweep")


def result(path: Path) -> dict[str, Any]:
    return json.loads((path / "sweep.json").read_text())


def states(path: Path) -> dict[str, str]:
    return {member["name"]: member["state"] for member in result(path)["members"]}


def test_one_broken_member_does_not_stop_the_others(tmp_path: Path) -> None:
    games = ["catch", "faulty:RaisesInInit", "faulty:Corridor"]
    file = write(tmp_path / "games.yaml", {"run.total_steps": 1600}, grid={"env.id": games})
    path = tmp_path / "games"
    with start(path, file) as sweep:
        assert sweep.wait(120) == 1
        sweep.assert_nothing_left()
    assert states(path) == {
        "env.id=catch": "finished",
        "env.id=faulty-RaisesInInit": "failed",
        "env.id=faulty-Corridor": "finished",
    }
    assert "env.id=faulty-RaisesInInit failed: RuntimeError: no licence found" in sweep.err
    assert "Traceback" not in sweep.err
    assert "2 running" in sweep.out
    assert "3 running" not in sweep.out
    assert (path / "plot.png").is_file()
    found = result(path)
    assert found["state"] == "failed"
    assert "no licence found" in next(one["cause"] for one in found["members"] if one["state"] == "failed")
    assert sorted(group["label"] for group in found["groups"] if group["mean"] is not None) == [
        "env.id=catch",
        "env.id=faulty:Corridor",
    ]
    for name in ("catch", "faulty-Corridor"):
        assert read_summary(path / f"env.id={name}")["env_steps"] == 1600

    before = {name: (path / name / "summary.json").stat().st_mtime_ns for name in ("env.id=catch",)}
    with start(path, file, "--retry") as again:
        assert again.wait(60) == 1
    assert again.out.count(": started") == 1
    assert {name: (path / name / "summary.json").stat().st_mtime_ns for name in before} == before


def test_ctrl_c_and_kill_9_and_resume(tmp_path: Path) -> None:
    """The first member is short, the second and third take their time, and the fourth waits for its turn."""
    lengths = [640, 12_800, 12_480, 960]
    fixed = {"env.id": "faulty:SlowCatch", "checkpoint.every_seconds": 0.3}
    file = write(tmp_path / "long.yaml", fixed, grid={"run.total_steps": lengths})
    path = tmp_path / "long"
    short, *slow = (path / f"total_steps={steps}" for steps in lengths)
    slow.pop()

    with start(path, file) as sweep:
        sweep.wait_until(lambda: all(read_metrics(run)[2:] for run in slow), "two slow members", 90)
        sweep.send(signal.SIGINT, group=True)
        assert sweep.wait(60) == 130
        sweep.assert_nothing_left()
    assert "Traceback" not in sweep.err
    assert "--resume" in sweep.out
    assert list(states(path).values()) == ["finished", "interrupted", "interrupted", "waiting"]
    assert [read_summary(run)["outcome"] for run in slow] == ["interrupted", "interrupted"]
    finished, saved = read_summary(short), [read_summary(run)["env_steps"] for run in slow]
    lines = [read_metrics(run) for run in slow]

    with start(path, file, "--resume") as sweep:
        further = [number + 1600 for number in saved]
        sweep.wait_until(
            lambda: all(newest(run) > steps for run, steps in zip(slow, further, strict=True)), "more steps", 90
        )
        sweep.send(signal.SIGKILL)
        assert sweep.wait() == -signal.SIGKILL
        sweep.assert_nothing_left()

    with start(path, file, "--resume") as sweep:
        assert sweep.wait(120) == 0
        sweep.assert_nothing_left()
    assert list(states(path).values()) == ["finished"] * 4
    assert read_summary(short) == finished
    assert sweep.out.count(": started") == 3
    for run, steps, before in zip(slow, lengths[1:], lines, strict=False):
        after = read_metrics(run)
        assert_monotone(after)
        assert after[: len(before)] == before  # it continued from its checkpoint
        assert read_summary(run)["env_steps"] == steps
    assert result(path)["state"] == "finished"


def newest(run: Path) -> int:
    """The environment steps of the newest checkpoint."""
    saved = RunDirectory(run).checkpoints.saved()
    return int(saved[-1].stem) if saved else 0


@pytest.mark.skipif(find_spec("optuna") is None, reason="Optuna is not installed")
def test_a_search_of_two_trials_can_be_continued_with_a_third(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "search": {
            "optimiser.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
            "network.hidden": {"choices": [[32], [32, 32]]},
        },
        "pruner": "median",
    }
    file, path = write(tmp_path / "rates.yaml", {"run.total_steps": 1600}, **options, trials=2), tmp_path / "rates"
    with start(path, file) as sweep:
        assert sweep.wait(120) == 0
    first = result(path)["members"]
    assert [member["name"] for member in first] == ["trial-000", "trial-001"]
    assert len({member["settings"]["optimiser.learning_rate"] for member in first}) == 2
    assert all(member["settings"]["network.hidden"] in ([32], [32, 32]) for member in first)
    for member in first:
        settings = plain_yaml.parse((path / member["run"] / "config.yaml").read_text())
        assert settings["optimiser"]["learning_rate"] == member["settings"]["optimiser.learning_rate"]

    write(tmp_path / "rates.yaml", {"run.total_steps": 1600}, **options, trials=3)
    with start(path, file, "--resume") as sweep:
        assert sweep.wait(90) == 0
    members = result(path)["members"]
    assert members[:2] == first
    assert len(members) == 3
    assert sweep.out.count(": started") == 1
