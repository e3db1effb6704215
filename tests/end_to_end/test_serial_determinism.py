"""transport=local: one seed, one history, bit for bit."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import SIZES, Training, command_line, read_metrics

from pronk.runs.directory import RunDirectory

# A line for every update, so that the clock does not choose which ones are written.
SERIAL = ("transport=local", *SIZES, "run.stop_return=null", "run.total_steps=3200", "run.log_every_seconds=1e-9")
KINDS = {
    "catch": ("catch", *SERIAL),
    "two actors, LSTM, last inputs": (
        "CartPole-v1",
        *SERIAL,
        "actors.count=2",
        "network.core=lstm",
        "network.core_size=8",
        "network.last_action=true",
        "network.last_reward=true",
    ),
    "continuous": ("Pendulum-v1", *SERIAL, "optimiser=rmsprop_tf"),
}
CLOCK = ("wall_seconds", "steps_per_second", "learner_waits")


def history(run: Path) -> list[dict[str, Any]]:
    return [{name: value for name, value in line.items() if name not in CLOCK} for line in read_metrics(run)]


def final_state(run: Path) -> dict[str, Any]:
    return RunDirectory.open(run).checkpoints.restore()[0]


def same(one: Any, other: Any) -> bool:
    """Bit-equal, all the way down."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other) and one.dtype == other.dtype
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def train(run: Path, *arguments: str) -> Path:
    ended = command_line("train", *arguments, "--run-dir", run, "--quiet")
    assert ended.code == 0, ended.err
    return run


@pytest.mark.parametrize("kind", KINDS)
def test_one_seed_gives_one_history(kind: str, tmp_path: Path) -> None:
    one, other = train(tmp_path / "one", *KINDS[kind]), train(tmp_path / "other", *KINDS[kind])
    assert len(history(one)) >= 5
    assert history(one) == history(other)
    assert same(final_state(one)["learner"], final_state(other)["learner"])


def test_another_process_repeats_the_history(tmp_path: Path) -> None:
    with Training(tmp_path / "there", *KINDS["catch"], fresh=True) as training:
        assert training.wait() == 0
    here = train(tmp_path / "here", *KINDS["catch"])
    assert history(here) == history(tmp_path / "there")
    assert same(final_state(here)["learner"], final_state(tmp_path / "there")["learner"])


def test_another_seed_gives_another_history(tmp_path: Path) -> None:
    one = train(tmp_path / "one", *KINDS["catch"], "--seed", "1")
    other = train(tmp_path / "other", *KINDS["catch"], "--seed", "2")
    assert history(one) != history(other)
    assert not same(final_state(one)["learner"]["network"], final_state(other)["learner"]["network"])


def test_two_resumes_of_one_checkpoint_are_one_history(tmp_path: Path) -> None:
    one = train(tmp_path / "one", *KINDS["catch"])
    other = Path(shutil.copytree(one, tmp_path / "other"))
    before = final_state(one)["learner"]
    for run in (one, other):
        train(run, "catch", "run.total_steps=6400", "--resume")
    assert history(one) == history(other)
    assert same(final_state(one)["learner"], final_state(other)["learner"])
    assert not same(before["network"], final_state(one)["learner"]["network"])


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_extra_lag_is_the_measured_lag(lag: int, tmp_path: Path) -> None:
    run = train(tmp_path / "run", *KINDS["catch"], f"learner.extra_lag={lag}")
    assert [line["policy_lag"] for line in read_metrics(run)] == [min(lag, update) for update in range(10)]
