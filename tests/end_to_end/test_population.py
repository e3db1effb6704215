"""`pronk population` with real members: Ctrl-C, kill -9 and resume, and what the other commands make of the result."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from processes import SIZES, Training, assert_monotone, command_line, read_metrics, read_summary

from pronk.config import plain_yaml
from pronk.runs.directory import RunDirectory

pytestmark = pytest.mark.timeout(240)
ROUND = 3200  # environment steps
SETTINGS = dict(setting.split("=") for setting in SIZES)
TREE: dict[str, Any] = {
    "base": "catch",
    "env.id": "faulty:SlowCatch",
    "transport": "local",
    "optimiser.schedule": "constant",
    "checkpoint.every_seconds": 0.3,
    "run": {"total_steps": 2 * ROUND, "stop_return": None, "log_every_seconds": 0.1},
    **{key: plain_yaml.parse(value) for key, value in SETTINGS.items() if key != "optimiser.learning_rate"},
    "population": {
        "size": 2,
        "ready_steps": ROUND,
        "burn_in_steps": 0,
        "margin": 0.0,
        "perturb_probability": 1.0,
        "priors": {"optimiser.learning_rate": {"low": 1e-5, "high": 1e-2, "log": True}},
    },
}


def test_ctrl_c_and_kill_9_and_resume(tmp_path: Path) -> None:
    file, path = tmp_path / "mine.yaml", tmp_path / "population"
    file.write_text(plain_yaml.dump(TREE))
    runs = [path / "member-00", path / "member-01"]

    with start(path, str(file)) as population:
        population.wait_until(lambda: all(newest(run) for run in runs), "two members", 90)
        population.send(signal.SIGINT, group=True)
        assert population.wait(60) == 130
        population.assert_nothing_left()
    assert "Traceback" not in population.err
    assert f"pronk population {path} --resume" in population.out
    assert [read_summary(run)["outcome"] for run in runs] == ["interrupted", "interrupted"]
    saved, before = [read_summary(run)["env_steps"] for run in runs], [read_metrics(run) for run in runs]
    assert all(0 < steps < ROUND for steps in saved)

    with start(path, str(file), "--resume", "--workers", "2") as population:
        population.wait_until(lambda: all(newest(run) > ROUND for run in runs), "the second round", 120)
        population.send(signal.SIGKILL)
        assert population.wait() == -signal.SIGKILL
        population.assert_nothing_left()
    for run, lines in zip(runs, before, strict=True):
        assert read_metrics(run)[: len(lines)] == lines  # it continued from its checkpoint
    decided = result(path)["rounds"]

    with start(path, str(file), "--resume") as population:
        assert population.wait(120) == 0, population.err
        population.assert_nothing_left()
    found = result(path)
    assert found["state"] == "finished"
    first, second = found["rounds"]
    assert first == decided[0]
    assert [(turn["parent"], turn["settings"]) for turn in second["members"]] == [
        (turn["parent"], turn["settings"]) for turn in decided[1]["members"]
    ]
    check_members(path, first["members"], second["members"])
    best = path / found["best"]["member"]
    assert f"Best: {best}, return" in population.out
    assert (path / "plot.png").is_file()
    assert command_line("eval", best, "--episodes", "2").code == 0
    assert command_line("runs", path).out.count("finished") == 2


def check_members(path: Path, first: list[dict[str, Any]], second: list[dict[str, Any]]) -> None:
    """The worse of the two copied the other; both have their own counters and the new settings."""
    order = sorted(first, key=lambda turn: turn["value"])
    worse, better = (turn["name"] for turn in order)
    assert {turn["name"]: turn["parent"] for turn in second} == {worse: better, better: None}
    for number, turn in enumerate(second):
        rate = turn["settings"]["optimiser.learning_rate"]
        origin = order[1]["settings"]["optimiser.learning_rate"]
        assert any(rate == pytest.approx(origin * factor, rel=1e-4) for factor in (1.2, 1 / 1.2))
        config = plain_yaml.parse((path / turn["name"] / "config.yaml").read_text())
        assert (config["optimiser"]["learning_rate"], config["run"]["seed"]) == (rate, 1 + number)
        lines = read_metrics(path / turn["name"])
        assert_monotone(lines)
        assert lines[-1]["learning_rate"] == rate
        assert lines[-1]["env_steps"] == read_summary(path / turn["name"])["env_steps"] == 2 * ROUND


def start(path: Path, *arguments: str) -> Training:
    return Training(path, *arguments, command="population")


def result(path: Path) -> dict[str, Any]:
    return json.loads((path / "population.json").read_text())


def newest(run: Path) -> int:
    """The environment steps of the newest checkpoint."""
    saved = RunDirectory(run).checkpoints.saved()
    return int(saved[-1].stem) if saved else 0
