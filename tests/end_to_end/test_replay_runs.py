"""Replay through the command line: every transport, several learners, and resumed runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from processes import SIZES, STEPS_PER_UPDATE, command_line, read_metrics, read_summary
from test_serial_determinism import final_state, history, same

EVERY_UPDATE = ("run.stop_return=null", "run.log_every_seconds=1e-9")
SERIAL = ("transport=local", *SIZES, *EVERY_UPDATE)
REPLAY = "replay.size=100"
ALL = (
    REPLAY,
    "replay.sampling=prioritised",
    "replay.trust_region=2",
    "replay.clone_policy_cost=0.01",
    "replay.clone_value_cost=0.005",
)
TEN = f"run.total_steps={10 * STEPS_PER_UPDATE}"


def train(run: Path, *arguments: str) -> str:
    """Train Catch; return what was said."""
    ended = command_line("train", "catch", *arguments, "--run-dir", run, "--quiet")
    assert ended.code == 0, ended.err
    return ended.err


def columns_in(file: Path) -> np.ndarray:
    """The versions of the columns in a saved buffer, in the order of their slots."""
    with np.load(file, allow_pickle=False) as saved:
        return saved["version"]


@pytest.mark.parametrize("transport", ["local", "shared_memory", "grpc"])
def test_replayed_columns_are_learnt_from_and_not_counted(transport: str, tmp_path: Path) -> None:
    train(tmp_path / "run", *SIZES, *EVERY_UPDATE, f"transport={transport}", "actors.count=1", *ALL, TEN)
    lines = read_metrics(tmp_path / "run")
    assert [line["env_steps"] for line in lines] == [STEPS_PER_UPDATE * (number + 1) for number in range(10)]
    assert "replay_lag" not in lines[0]
    assert all(line["replay_lag"] >= 1 for line in lines[1:])
    for line in lines:
        assert 0 < line["trusted"] <= 1
        assert np.isfinite([line["clone_policy_loss"], line["clone_value_loss"]]).all()
    assert lines[0]["clone_policy_loss"] == 0 < lines[1]["clone_policy_loss"]


def test_in_one_process_lags_are_those_of_the_buffer(tmp_path: Path) -> None:
    """16 columns enter with every update, and 100 stay: at update u, those of versions u - 7 to u - 1."""
    train(tmp_path / "run", *SERIAL, REPLAY, "replay.fraction=0.9", "replay.keep=true", TEN)
    lags = [line.get("replay_lag") for line in read_metrics(tmp_path / "run")]
    assert lags[:2] == [None, 1.0]
    assert lags[9] == pytest.approx(np.mean([*range(1, 7)] * 4 + [7]), abs=0.6)
    saved = columns_in(tmp_path / "run" / "checkpoints" / "replay-000.npz")
    assert sorted(saved.tolist()) == [version for version in range(3, 10) for _ in range(4 if version == 3 else 16)]


def test_one_seed_gives_one_history(tmp_path: Path) -> None:
    for run in ("one", "other"):
        train(tmp_path / run, *SERIAL, *ALL, TEN)
    assert history(tmp_path / "one") == history(tmp_path / "other")
    states = [final_state(tmp_path / run)["learner"]["network"] for run in ("one", "other")]
    assert same(*states)


def test_a_resumed_run_starts_with_an_empty_buffer_and_says_so(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert train(run, *SERIAL, REPLAY, TEN) == ""
    assert not list(run.glob("checkpoints/replay*"))
    said = train(run, "--resume", f"run.total_steps={13 * STEPS_PER_UPDATE}")
    assert said == "replay starts empty: it was not saved (replay.keep=false)\n"
    assert [line.get("replay_lag") for line in read_metrics(run)][10:12] == [None, 1.0]


def test_a_resumed_run_continues_with_a_buffer_that_was_kept(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert train(run, *SERIAL, *ALL, "replay.keep=true", TEN) == ""
    assert train(run, "--resume", f"run.total_steps={12 * STEPS_PER_UPDATE}") == ""
    lines = read_metrics(run)
    assert lines[10]["updates"] == 11
    assert lines[10]["replay_lag"] > 1.5, "from the buffer of before"
    other = "actors.unroll_length=10"
    said = train(run, "--resume", f"run.total_steps={14 * STEPS_PER_UPDATE}", other)
    assert said.startswith("replay starts empty: ")
    assert said.endswith("replay-000.npz cannot be used (it was saved with other settings)\n")


@pytest.mark.timeout(300)
def test_each_learner_has_a_buffer_of_its_share(tmp_path: Path) -> None:
    run = tmp_path / "run"
    changes = ("replay.keep=true", "learners=2", "actors.envs=8")
    assert train(run, *SERIAL, *ALL, *changes, TEN) == ""
    shares = [columns_in(run / "checkpoints" / f"replay-{rank:03d}.npz") for rank in range(2)]
    assert [len(share) for share in shares] == [50, 50]
    assert all(line["replay_lag"] >= 1 for line in read_metrics(run)[1:])
    assert train(run, "--resume", f"run.total_steps={12 * STEPS_PER_UPDATE}") == ""
    assert read_summary(run)["updates"] == 12
    assert read_metrics(run)[10]["replay_lag"] > 1.5


def test_a_buffer_that_does_not_fit_is_refused_in_one_line(tmp_path: Path) -> None:
    arguments = ("catch", *SERIAL, "replay.size=100000000", "--run-dir", tmp_path / "run")
    ended = command_line("train", *arguments)
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert "replay.size" in ended.err
    assert "GiB" in ended.err
    assert not (tmp_path / "run").exists()


def test_memory_is_stated_at_the_start(tmp_path: Path) -> None:
    ended = command_line("train", "catch", *SERIAL, REPLAY, TEN, "--run-dir", tmp_path / "run")
    assert ended.code == 0
    wanted = "replay: 16 columns on top of 16 fresh ones, from the last 100 of 20 steps ("
    assert wanted in " ".join((ended.out + ended.err).split())


@pytest.mark.slow
def test_catch_is_learnt_with_everything_switched_on(tmp_path: Path) -> None:
    changes = ("transport=local", "run.stop_return=0.8", "learner.extra_lag=2", "replay.size=1000", *ALL[1:])
    train(tmp_path / "run", *changes)
    assert read_summary(tmp_path / "run")["outcome"] == "solved"


def test_a_loss_of_the_users_own_needs_no_change(tmp_path: Path) -> None:
    train(tmp_path / "run", *SERIAL, *ALL, "loss=own_parts:Reinforce", "loss.kwargs={weight: 0.01}", TEN)
    last = read_metrics(tmp_path / "run")[-1]
    assert {"my_score", "trusted", "clone_policy_loss", "clone_value_loss", "replay_lag"} <= last.keys()
