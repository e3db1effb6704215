"""Which learner a process is, and which part of the run is its own."""

from __future__ import annotations

import pytest

from pronk.config import available_cores, load_config
from pronk.config.knobs import LearnersConfig
from pronk.learners import Place, find_place, part_of, place_in, whole_run
from pronk.types import UserError

TORCHRUN = {"RANK": "2", "WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
TORCHRUN |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_USE_AGENT_STORE": "True"}


def place(environment: dict[str, str] | None = None, **settings: object) -> Place:
    return find_place(LearnersConfig.model_validate(settings), environment or {})


def test_one_learner_unless_told_otherwise():
    assert place() == Place()
    assert place({"RANK": "0", "WORLD_SIZE": "1"}) == Place()
    assert place({"RANK": "3"}) == Place(), "others use this name too"


def test_several_on_this_machine():
    assert place(count=3) == Place(0, 3, 0, 3)


def test_torchrun():
    assert place(TORCHRUN) == place(TORCHRUN, count=4) == Place(2, 4, 0, 2, "10.0.0.1", 29500, False)


def test_by_hand():
    by_hand = Place(1, 2, host="host-a", port=29500)
    assert place(count=2, rank=1, address="host-a:29500") == by_hand
    assert place(count=2, rank=1, address="[fe80::1]:29500").host == "fe80::1"
    assert (
        place_in(["run.seed=3", "learners.count=2", "learners.rank=1", "learners.address=host-a:29500"], {}) == by_hand
    )
    assert place_in(["run.seed=3"], {}) == Place()


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
        place(environment, **settings)


def test_mistakes_on_the_command_line_of_a_further_learner_name_the_key():
    with pytest.raises(UserError, match=r"learners.*rank"):
        place_in(["learners.rank=-1"], {})


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["learners=3"], r"learner\.batch_size \(64\) must be a multiple of learners\.count \(3\).*batch_size=66"),
        (["learners=128"], r"learner\.batch_size \(64\).*learners\.count \(128\).*batch_size=128"),
        (["learners=2", "actors.envs=48"], r"learners\.count \(32\).*actors\.envs \(48\).*batch_size=96"),
        (["learners=2", "learners.rank=2"], r"rank \(2\) must be below count \(2\)"),
    ],
)
def test_what_does_not_divide_is_a_users_mistake(overrides, named):
    with pytest.raises(UserError, match=named):
        load_config("cartpole", overrides)


def test_every_learner_has_its_part_of_the_batch_and_of_the_actors():
    config = load_config("catch", ["learners=4", "learner.batch_size=32", "actors.count=6", "actors.envs=8"])
    parts = [part_of(config, Place(rank, 4, rank, 4)) for rank in range(4)]
    assert [part.columns for part in parts] == [8] * 4
    assert [part.actors.count for part in parts] == [2, 2, 1, 1]
    assert [part.learners.rank for part in parts] == [0, 1, 2, 3]
    assert all(part == part.resolved() for part in parts)


def test_every_learner_has_at_least_one_actor():
    config = load_config("cartpole", ["learners=2"])
    assert config.actors.count == 1
    assert [part_of(config, Place(rank, 2, rank, 2)).actors.count for rank in range(2)] == [1, 1]


def test_actors_of_other_machines_join_every_learner_at_a_port_of_its_own():
    config = load_config("catch", ["learners=2", "actors.count=0", "transport.address=0.0.0.0:5050"])
    parts = [part_of(config, Place(rank, 2, rank, 2)) for rank in range(2)]
    assert [part.actors.count for part in parts] == [0, 0]
    assert [part.transport.address for part in parts] == ["0.0.0.0:5050", "0.0.0.0:5051"]
    assert whole_run(config, Place(0, 2, 0, 2)).transport.address == "0.0.0.0:5050"
    elsewhere = part_of(config, Place(1, 2, 0, 1, "here", 1))
    assert elsewhere.transport.address == "0.0.0.0:5050", "another machine has all its ports"
    free = config.replace({"transport.address": "127.0.0.1:0"})
    assert part_of(free, Place(1, 2, 1, 2)).transport.address == "127.0.0.1:0"


def test_auto_shares_this_machine():
    config = load_config("catch", ["learners=4", "learner.batch_size=32"])
    parts = [part_of(config, Place(rank, 4, rank % 2, 2)) for rank in range(4)]
    assert sum(part.actors.count for part in parts[:2]) == max(2, available_cores())
    assert all(part.learner.threads == 1 for part in parts)


def test_what_is_written_down_is_the_whole_run_and_not_where_it_ran():
    config = load_config("catch", ["learners=2", "learner.batch_size=32", "learners.rank=0", "learners.address=here:1"])
    written = whole_run(config, Place(0, 2, 0, 1, "here", 1))
    assert (written.learners.count, written.learners.rank, written.learners.address) == (2, None, None)
    assert (written.actors.count, written.learner.threads, written.learner.batch_size) == ("auto", "auto", 32)
    assert isinstance(written.actors.envs, int)
    assert isinstance(written.network.separate_value, bool)
    alone = load_config("catch")
    assert whole_run(alone, Place()) == alone.resolved()


def test_too_few_for_a_batch_is_told_as_for_one_learner():
    config = load_config("catch", ["learners=2", "learner.batch_size=256", "actors.count=2", "actors.envs=16"])
    with pytest.raises(UserError, match=r"actors\.count=1"):
        part_of(config, Place(0, 2, 0, 2))


def test_a_torchrun_of_a_size_that_does_not_divide():
    with pytest.raises(UserError, match=r"learner\.batch_size \(16\) must be a multiple of learners\.count \(3\)"):
        part_of(load_config("catch"), Place(0, 3, 0, 3, "here", 1))
