"""The short form of the chaos suite (`make chaos`): a few faults, seeded, against real runs."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
import torch
from stamped import CLOCK

sys.path.insert(0, str(Path(__file__).parent))

import run
from chaos_run import COLUMNS, RUN, STEPS
from faults import LIVE
from trials import Result, kills, live, sample

from pronk.config import load_config, resolve
from pronk.layout import UnrollLayout
from pronk.learner import Learner
from pronk.types import ActionSpec, ArraySpec, EnvSpec, Unroll, map_unroll, unroll_specs

pytestmark = pytest.mark.timeout(600)
CHEAP = ("kill -9 of an actor", "SIGSTOP and SIGCONT of the learner", "no descriptors left, and an actor dies")


def test_a_run_goes_on_and_learns_through_faults(tmp_path: Path) -> None:
    faults = [fault for fault in LIVE if fault.kind in CHEAP]
    for result in live("shared memory", faults, tmp_path, random.Random(1)):
        assert result.is_good, result


def test_a_killed_learner_goes_on_where_its_checkpoint_is(tmp_path: Path) -> None:
    for result in kills(1, tmp_path, random.Random(3)):
        assert result.is_good, result


def test_every_kind_of_fault_comes_before_any_comes_again() -> None:
    pairs = sum(len(fault.where) for fault in LIVE)
    dealt = sample(pairs, random.Random(1))
    assert sum(map(len, dealt.values())) == pairs
    assert all(len({fault.kind for fault in faults}) == len(faults) for faults in dealt.values())


def learner_and_batch() -> tuple[Learner, Unroll]:
    """A learner of the chaos runs, and a first batch of its environments."""
    spec = EnvSpec(ArraySpec((4,), "float32"), ActionSpec((), (2,)))
    learner = Learner(resolve(load_config(RUN[0], RUN[1:])), spec, torch.device("cpu"))
    layout = UnrollLayout(unroll_specs(spec, learner.network.state_spec, STEPS, COLUMNS))
    batch = map_unroll(torch.from_numpy, layout.allocate())
    batch.observation[..., 1] = torch.arange(COLUMNS)  # the name of an environment
    batch.observation[..., 3] = torch.arange(STEPS + 1).unsqueeze(1) * CLOCK
    batch.reward.fill_(1.0)
    batch.valid.fill_(True)
    return learner, batch


def test_an_update_may_be_tried_again_but_not_made_twice() -> None:
    learner, batch = learner_and_batch()
    learner.gradient(batch, meanwhile=lambda: None)  # an update that the loss of a learner interrupts
    learner.step(batch, 1e-3)
    with pytest.raises(RuntimeError, match="learnt twice in a row"):
        learner.step(batch, 1e-3)


def test_an_unroll_that_comes_again_later_is_noticed() -> None:
    learner, batch = learner_and_batch()
    learner.step(batch, 1e-3)
    later = batch._replace(observation=batch.observation.clone())
    later.observation[..., 3] += STEPS * CLOCK
    learner.step(later, 1e-3)
    with pytest.raises(RuntimeError, match="an unroll was learnt twice"):
        learner.step(batch, 1e-3)


def test_a_part_of_the_suite_that_is_done_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def part(name: str) -> run.Part:
        def results(folder: Path, chance: random.Random) -> list[Result]:
            ran.append(name)
            return [Result(f"{name} {chance.random()}", "shared memory", "survived")]

        return run.Part(name, results)

    def suite(names: str, seed: int = 1) -> int:
        monkeypatch.setattr(run, "parts", lambda options: map(part, names))
        monkeypatch.setattr(sys, "argv", ["run.py", "--results", str(file), "--seed", str(seed)])
        with pytest.raises(SystemExit) as ended:
            run.main()
        return ended.value.code

    file = tmp_path / "chaos.jsonl"
    assert suite("ab") == suite("abc") == 0
    assert "".join(ran) == "abc"
    suite("b", seed=2)
    lines = file.read_text().splitlines()
    assert "".join(ran) == "abcb"
    assert len(set(lines)) == 4, "each part and seed has random numbers of its own"
