"""Two learners with half the batch each equal one with the whole: two processes, real sockets, real all-reduce.

This file is both of them: the test is learner 0, and starts itself as a program to be learner 1.
"""

from __future__ import annotations

import ast
import contextlib
import math
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from test_learner import LSTM, batch_for, configured, learner_of, step, weights_of

from pronk.batcher import Batch
from pronk.layout import columns
from pronk.learner import Learner, NonFinite
from pronk.learners import LearnerGroup, Rendezvous, Shared, SingleLearner, coordinate, participate
from pronk.learners.base import Contribution
from pronk.learners.distributed import DistributedGroup
from pronk.metrics import Experience
from pronk.processes.interrupts import Interrupts
from pronk.types import Unroll, map_unroll

HALF, LENGTH, UPDATES, RATE = 4, 5, 3, 0.02
ROOT = Path(__file__).parents[2]

# What is different from the default, and the share of steps that are valid in each half of the batch.
CASES: dict[str, tuple[dict[str, Any], tuple[float, float]]] = {
    "mean": ({}, (0.95, 0.3)),
    "sum": ({"loss.reduction": "sum"}, (0.95, 0.3)),
    "clipped": ({"optimiser.max_gradient_norm": 0.05}, (0.95, 0.3)),
    "lstm": (LSTM, (0.3, 0.95)),
    "nothing valid in one": ({}, (0.0, 0.9)),
    "nothing valid anywhere": ({"loss.reduction": "sum"}, (0.0, 0.0)),
}
BROKEN, KILLED = "broken", "killed"
SAID: list[str] = []  # to learner 0's user


class Update(NamedTuple):
    gradient: torch.Tensor
    weights: torch.Tensor
    report: dict[str, float]
    experience: Experience


def make(changes: dict[str, Any], seed: int) -> Learner:
    return learner_of(configured(**changes, optimiser__name="rmsprop_tf", run__seed=seed))


def whole_batch(learner: Learner, number: int, valid: tuple[float, float]) -> Unroll:
    batch = batch_for(learner, number, LENGTH, 2 * HALF)
    generator = torch.Generator().manual_seed(number)
    for half, often in enumerate(valid):
        part = columns(batch, half * HALF, HALF).valid
        part.copy_(torch.rand(part.shape, generator=generator) < often)
    return batch


def update(group: LearnerGroup, learner: Learner, batch: Unroll) -> Update:
    """As the training loop does it."""
    done = group.step(learner, batch_of(batch), RATE, lambda: None)
    return Update(learner.gradients.clone(), weights_of(learner).clone(), done.report, done.experience.counted())


def batch_of(tensors: Unroll) -> Batch:
    return Batch(tensors, map_unroll(lambda tensor: tensor.numpy(), tensors), np.ones(tensors.version.shape[0], bool))


def begin(group: LearnerGroup, learner: Learner) -> None:
    def load(state: dict[str, Any]) -> None:
        learner.version = state["version"]

    shared = Shared(learner.tensors(), lambda: {"version": learner.version}, load)
    group.begin(shared, Interrupts(), contextlib.nullcontext)


def be(rank: int, group: LearnerGroup, learner: Learner, valid: tuple[float, float]) -> list[Update]:
    """Begin as one, then learn from one's own half of every batch."""
    begin(group, learner)
    batches = (whole_batch(learner, number, valid) for number in range(UPDATES))
    return [update(group, learner, columns(batch, rank * HALF, HALF)) for batch in batches]


def break_one(rank: int, group: LearnerGroup, learner: Learner) -> tuple[str, bool]:
    """Learner 1 meets a NaN. What both say, and whether the weights are as they were."""
    begin(group, learner)
    before = weights_of(learner).clone()
    batch = whole_batch(learner, 1, (1.0, 1.0))
    batch.reward[2, HALF] = math.nan  # in the second half
    try:
        update(group, learner, columns(batch, rank * HALF, HALF))
    except NonFinite as error:
        return str(error), torch.equal(before, weights_of(learner))
    return "nothing", False


def kill_one(rank: int, group: DistributedGroup, learner: Learner) -> Update:
    """Learner 1 is killed where it hurts most: all have agreed to add up their gradients. What learner 0 does then."""
    begin(group, learner)
    batch = columns(whole_batch(learner, 1, (1.0, 1.0)), rank * HALF, HALF)
    if rank == 0:
        return update(group, learner, batch)
    arrays = batch_of(batch)
    report = learner.gradient(batch, lambda: None) | {"learning_rate": RATE}
    group.exchange(Contribution.of(arrays.arrays, report, learner.version, arrays.fresh))
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def second(ports: dict[str, int], folder: Path) -> None:
    """Learner 1's whole life."""
    for name, port in ports.items():
        with participate(Rendezvous(1, 2, host="127.0.0.1", port=port), print) as (group, _):
            changes, valid = CASES.get(name, ({}, (0, 0)))
            learner = make(changes, seed=2)  # other weights than learner 0's
            if name == KILLED:
                kill_one(1, group, learner)
            done = break_one(1, group, learner) if name == BROKEN else be(1, group, learner, valid)
            torch.save([tuple(each)[:2] for each in done] if name != BROKEN else done, folder / name)
            group.leave("finished")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("second")


@pytest.fixture(scope="module")
def results(folder: Path) -> Iterator[dict[str, Any]]:
    """What learner 0 did in each case, while learner 1 did its half."""
    names = [*CASES, BROKEN, KILLED]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    command = [sys.executable, __file__, repr(ports), str(folder)]
    with subprocess.Popen(command, cwd=ROOT, env=environment()) as process:
        try:
            done: dict[str, Any] = {}
            for name, port in ports.items():
                changes, valid = CASES.get(name, ({}, (0, 0)))
                learner = prepared(make(changes, seed=1), valid)
                reduction = changes.get("loss.reduction", "mean")
                with coordinate(Rendezvous(0, 2, host="127.0.0.1", port=port), reduction, SAID.append) as group:
                    group.announce("", "", folder)
                    special = {BROKEN: break_one, KILLED: kill_one}.get(name)
                    done[name] = special(0, group, learner) if special else be(0, group, learner, valid)
                    group.leave("finished")
            yield done
            assert process.wait(30) == -signal.SIGKILL
        finally:
            process.kill()


def prepared(learner: Learner, valid: tuple[float, float]) -> Learner:
    """With a step behind it, so that the optimiser's state matters."""
    step(learner, whole_batch(learner, 99, (0.9, 0.9)), RATE)
    return learner


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def environment() -> dict[str, str]:
    """What this process can import, learner 1 can import."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.parametrize("name", CASES)
def test_a_step_of_two_learners_equals_one_learners_step_on_both_batches(name, results, folder):
    changes, valid = CASES[name]
    alone = prepared(make(changes, seed=1), valid)
    for ours, (their_gradient, their_weights), number in zip(
        results[name], torch.load(folder / name), range(UPDATES), strict=True
    ):
        one = update(SingleLearner(), alone, whole_batch(alone, number, valid))
        assert torch.equal(ours.gradient, their_gradient), "bit for bit the same on both"
        assert torch.equal(ours.weights, their_weights), "bit for bit the same on both"
        torch.testing.assert_close(ours.gradient, one.gradient, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(ours.weights, one.weights, rtol=1e-5, atol=1e-5)
        assert ours.report == pytest.approx(one.report, rel=1e-5, abs=1e-5)
        assert ours.experience == one.experience
        assert one.report["gradient_norm"] > 0.1 or max(valid) == 0, "there was something to learn"


def test_a_nan_in_one_learner_stops_both_before_weights_are_touched(results, folder):
    (ours, untouched), (theirs, their_untouched) = results[BROKEN], torch.load(folder / BROKEN)
    assert untouched
    assert their_untouched
    assert ours == theirs
    assert "nan" in ours


def test_a_learner_killed_inside_the_sum_leaves_the_other_to_make_the_same_update_alone(results):
    alone = prepared(make({}, seed=1), (0, 0))
    one = update(SingleLearner(), alone, columns(whole_batch(alone, 1, (1.0, 1.0)), 0, HALF))
    assert torch.equal(results[KILLED].weights, one.weights)
    assert results[KILLED].experience == one.experience, "what the dead learner had contributed is not counted"
    assert SAID[-1].startswith("learner 1 is gone (127.0.0.1: ")
    assert SAID[-1].endswith("training continues with 1 of 2 learners, and it may join again")


if __name__ == "__main__":
    second(ast.literal_eval(sys.argv[1]), Path(sys.argv[2]))
