"""Which learner a process is, and where it finds learner 0."""

from __future__ import annotations

import pytest

from pronk.config.knobs import LearnersConfig
from pronk.learners import Rendezvous, find_rendezvous, rendezvous_in
from pronk.types import UserError

TORCHRUN = {"RANK": "2", "WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
TORCHRUN |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_USE_AGENT_STORE": "True"}


def rendezvous(environment: dict[str, str] | None = None, **settings: object) -> Rendezvous:
    return find_rendezvous(LearnersConfig.model_validate(settings), environment or {})


def test_one_learner_unless_told_otherwise():
    assert rendezvous() == Rendezvous()
    assert rendezvous({"RANK": "0", "WORLD_SIZE": "1"}) == Rendezvous()
    assert rendezvous({"RANK": "3"}) == Rendezvous(), "others use this name too"


def test_several_on_this_machine():
    assert rendezvous(count=3) == Rendezvous(0, 3, 0, 3)


def test_torchrun():
    assert rendezvous(TORCHRUN) == rendezvous(TORCHRUN, count=4) == Rendezvous(2, 4, 0, 2, "10.0.0.1", 29500, False)


def test_by_hand():
    by_hand = Rendezvous(1, 2, host="host-a", port=29500)
    assert rendezvous(count=2, rank=1, address="host-a:29500") == by_hand
    assert rendezvous(count=2, rank=1, address="[fe80::1]:29500").host == "fe80::1"
    overrides = ["run.seed=3", "learners.count=2", "learners.rank=1", "learners.address=host-a:29500"]
    assert rendezvous_in(overrides, {}) == by_hand
    assert rendezvous_in(["run.seed=3"], {}) == Rendezvous()


@pytest.mark.parametrize(
    ("settings", "environment", "named"),
    [
        ({"count": 2}, TORCHRUN, "learners.count=2.*WORLD_SIZE=4"),
        ({"count": 2, "rank": 1}, {}, "learners.address"),
        ({"count": 2, "address": "here:1"}, {}, "learners.rank"),
        ({"rank": 1, "address": "here:1"}, {}, "learners.count"),
        ({"count": 2, "rank": 1, "address": "here"}, {}, "HOST:PORT"),
        ({"count": 2, "rank": 1, "address": "here:99999"}, {}, "HOST:PORT"),
        ({"count": 2, "rank": 1, "address": ":5"}, {}, "HOST:PORT"),
        ({}, TORCHRUN | {"RANK": "4"}, "learners.rank=4"),
    ],
)
def test_mistakes_name_the_key(settings, environment, named):
    with pytest.raises(UserError, match=named):
        rendezvous(environment, **settings)


def test_mistakes_on_the_command_line_of_a_further_learner_name_the_key():
    with pytest.raises(UserError, match=r"learners.*rank"):
        rendezvous_in(["learners.rank=-1"], {})
