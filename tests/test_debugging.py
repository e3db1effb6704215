"""Batches whose loss is not finite: dropped where that is wanted, and run again by `pronk debug`."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from processes import command_line, read_summary
from test_learner import batch_for, configured, learner_of

from pronk.debugging import trace
from pronk.learner import Learner

SIZES = ("transport=local", "actors.envs=4", "actors.unroll_length=20", "learner.batch_size=4", "learner.passes=1")


def train(path: Path, env: str, *overrides: str) -> tuple[int, str]:
    ended = command_line("train", f"faulty:{env}", *SIZES, *overrides, "--run-dir", path, "--quiet")
    return ended.code, ended.err


def test_a_batch_is_dropped_and_training_goes_on(tmp_path: Path) -> None:
    steps = 20 * 80
    settings = ("env.kwargs.after=100", "learner.on_nan=skip", f"run.total_steps={steps}", "run.stop_return=null")
    code, said = train(tmp_path / "run", "HugeRewardOnce", *settings)
    assert code == 0, said
    assert said.count("a batch was dropped (learner.on_nan=skip): ") == 1
    summary = read_summary(tmp_path / "run")
    assert (summary["outcome"], summary["env_steps"], summary["updates"]) == ("finished", steps, 20), (
        "learnt, not played"
    )


def test_too_many_dropped_batches_in_a_row_end_the_run_and_debug_names_the_first_tensor(tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = ("env.kwargs.after=100", "learner.on_nan=skip", "learner.max_skipped=3", "run.total_steps=1e6")
    code, said = train(run, "HugeReward", *settings)
    assert code == 1
    assert "2 batches were dropped so far" in said
    assert "failed: " in said
    assert read_summary(run)["updates"] == 5, "100 steps of each environment were learnt"
    ended = command_line("debug", run)
    assert ended.code == 0, ended.err
    first = next(line for line in ended.out.splitlines() if line.startswith("first not finite: "))
    assert first.startswith("first not finite: loss: policy_loss is ")
    assert "reward 3e+38" in ended.out
    assert "the update after 5 others, 4 columns of 20 steps" in ended.out

    (run / "broken_batch.pt").write_bytes(b"torn")
    assert command_line("debug", run).code == 2
    (run / "broken_batch.pt").unlink()
    nothing = command_line("debug", run)
    assert nothing.code == 2
    assert "has no broken_batch.pt" in nothing.err


def learner_and_batch() -> tuple[Learner, object]:
    learner = learner_of(configured())
    return learner, batch_for(learner, 1, 5, 4)


def test_what_is_not_finite_in_the_batch_comes_first() -> None:
    learner, batch = learner_and_batch()
    batch.reward[2, 3] = math.inf
    broken, report = trace(learner, batch)
    assert (broken[0].where, broken[0].name, broken[0].first, broken[0].value) == ("batch", "reward", (2, 3), math.inf)
    assert not math.isfinite(report["loss"])
    assert {one.where for one in broken} == {"batch", "loss", "backward"}, "the network never sees a reward"


def test_a_weight_comes_before_what_is_computed_from_it() -> None:
    learner, batch = learner_and_batch()
    name, weight = next(iter(learner.network.named_parameters()))
    with torch.no_grad():
        weight.view(-1)[0] = math.nan
    broken, _ = trace(learner, batch)
    assert (broken[0].where, broken[0].name) == ("weights", name)
    order = [one.where for one in broken]
    assert order == sorted(order, key=["weights", "batch", "forward", "loss", "backward"].index)
    assert "forward" in order


@pytest.mark.parametrize("seed", [1, 2])
def test_a_finite_step_has_nothing_to_name(seed: int) -> None:
    learner = learner_of(configured())
    assert trace(learner, batch_for(learner, seed, 5, 4))[0] == []
