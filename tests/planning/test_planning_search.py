"""Targets -> numbers, and the files that costs come from."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pronk.config import Rank, load_config, resolve
from pronk.planning.costs import Costs, Sizes, costs_of, costs_of_bench, read_costs
from pronk.planning.search import Request, fewest_actors, make_plan, pipeline_of
from pronk.planning.simulation import simulate
from pronk.planning.wording import advice, bottleneck, settings
from pronk.types import UserError

# 16 environments x 20 steps: an unroll of 320 steps takes 0.32 s to play, and an update from it 16 ms.
COSTS = Costs(
    cores=8,
    envs=16,
    unroll_length=20,
    batch_size=16,
    actor=1e-3,
    update=5e-5,
    unroll_bytes=1_000_000,
    parameters_bytes=1_000_000,
    gateway=0.001,
    send=0.001,
    pull=0.001,
    exchange=0.001,
)


@pytest.fixture(scope="module")
def config():
    return resolve(load_config("catch", ["actors.count=2", "actors.envs=16", "actors.slots=2"]))


def planned(config, target, costs=COSTS, **request):
    return make_plan(config, costs, Request(**{"cores": 8, "bandwidth": 1.25e9, "target": target, **request}))


def test_without_a_target_the_configuration_is_predicted(config):
    plan = planned(config, None)
    assert (plan.actors, plan.learners, plan.machines, plan.gateways) == (2, 1, 1, 0)
    assert plan.prediction.steps_per_second == pytest.approx(2000, rel=0.02)


def test_the_fewest_actors_on_one_machine(config):
    plan = planned(config, 3500)
    assert (plan.actors, plan.machines, plan.reached) == (4, 1, True)
    assert settings(plan, 16) == "actors.count=4"


def test_the_fewest_actors_on_many_machines(config):
    plan = planned(config, 18_000)
    assert (plan.learners, plan.gateways, plan.reached) == (1, 1, True)
    assert plan.prediction.steps_per_second >= 0.999 * 18_000
    fewer = simulate(replace(plan.pipeline, actors=plan.actors - 1))
    assert fewer.steps_per_second < 18_000
    assert plan.machines == 1 + -(-plan.actors // 8)
    assert settings(plan, 16) == "actors.count=0"


def test_more_than_a_learner_can_take_needs_more_learners(config):
    plan = planned(config, 50_000)  # one learner: 20,000 steps/s
    assert (plan.learners, plan.reached) == (3, True)
    assert settings(plan, 16) == "actors.count=0 learners.count=3 learner.batch_size=48"


def test_a_faster_learner_needs_fewer(config):
    plan = planned(config, 50_000, learner_rate=100_000)
    assert (plan.learners, plan.reached) == (1, True)


def test_a_full_gateway_needs_more_learners(config):
    plan = planned(config, 50_000, replace(COSTS, gateway=0.02), learner_rate=1e6)  # 16,000 steps/s each
    assert plan.reached
    assert plan.learners == 4
    full = replace(plan.pipeline, learners=1, actors=50)
    made = replace(plan, pipeline=full, prediction=simulate(full))
    assert bottleneck(made) == "gateway"
    assert "each with a gateway" in advice(made)


def test_too_few_machines_give_the_fastest_plan(config):
    plan = planned(config, 1e6, machines=4)
    assert not plan.reached
    assert plan.machines <= 4
    assert plan.actors == 24  # three machines of actors; a second learner would take one of them
    one = planned(config, 1e6, machines=1)
    assert one.machines == 1
    assert one.prediction.steps_per_second < plan.prediction.steps_per_second


def test_many_machines_are_divided_between_learners_and_actors(config):
    plan = planned(config, 1e9, machines=100)
    # One learner takes 20,000 steps/s, an actor plays 1,000: about 28 learners, with 20 actors for each.
    assert plan.prediction.steps_per_second > 0.9 * 28 * 20_000
    assert 25 <= plan.learners <= 35
    assert plan.machines <= 100


@pytest.mark.parametrize(("machines", "cores"), [(2, 1), (3, 1), (10, 1), (20, 2), (5, 4)])
@pytest.mark.parametrize("unrolls", [1, 8])  # of a batch
def test_a_plan_never_has_more_machines_than_there_are(config, machines, cores, unrolls):
    shape = config.replace({"actors.envs": 16 // unrolls})
    plan = planned(shape, 1e6, machines=machines, cores=cores)
    assert plan.machines <= machines
    assert plan.pipeline.one_machine or plan.actors <= plan.actor_machines * cores


def test_a_target_beyond_reach_takes_no_more_actors_than_learners_can_use(config):
    plan = planned(config, 1e15)
    assert (plan.learners, plan.reached) == (1024, False)
    assert plan.pipeline.actors < 2 * 20  # 20 actors of 1,000 steps/s fill a learner


def test_fewer_learners_than_configured_are_written_down():
    shape = ["actors.envs=16", "learners.count=2", "learner.batch_size=32"]
    two = resolve(load_config("catch", shape), Rank(0, 2, 0, 2))
    plan = planned(two, 1000)
    assert plan.learners == 1
    assert settings(plan, 16, two.learners) == "actors.count=1 learners.count=1 learner.batch_size=16"


def test_slow_networks_are_named(config):
    asked = Request(cores=8, bandwidth=2e7, target=18_000)  # 20 unrolls/s
    spread = replace(pipeline_of(config, COSTS, asked), one_machine=False, network=True, bandwidth=asked.bandwidth)
    plan = fewest_actors(spread, 18_000, cores=8, room=None)
    assert not plan.reached
    assert bottleneck(plan) == "up"
    assert "transport.compression=lz4" in advice(plan)


def test_a_saturated_learner_is_named(config):
    plan = planned(config, None, replace(COSTS, update=1e-2))
    assert bottleneck(plan) == "learner"
    assert "learners.count" in advice(plan)


def test_replay_widens_the_batch(config):
    replayed = config.replace({"replay.size": 100, "replay.fraction": 0.5})
    asked = Request(cores=8)
    plain, wide = (pipeline_of(one, COSTS, asked).update_seconds for one in (config, replayed))
    assert wide == pytest.approx(2 * plain)


def test_costs_are_read_back(tmp_path):
    file = tmp_path / "costs.json"
    costs = replace(COSTS, gateway=0.0, exchange=0.0)  # both may be too short to be measured
    file.write_text(json.dumps({"plan": {}, "costs": {**costs.plain(), "cores": 8.0}}))
    read = costs_of(read_costs(file), file)
    assert read == costs
    assert isinstance(read.cores, int)


def test_costs_of_a_bench(tmp_path):
    file = tmp_path / "bench.json"
    file.write_text(json.dumps({"env": 4000.0, "inference": 4000.0, "learner": 20_000.0, "passes": 1.0, "cores": 8}))
    costs = costs_of_bench(read_costs(file), Sizes(16, 20, 16, 1000, 500, 4), file)
    assert (costs.actor, costs.update, costs.cores, costs.frames_per_step) == (5e-4, 5e-5, 8, 4)
    assert costs.gateway is None


def test_another_shape_scales_sizes():
    twice = COSTS.fitted(envs=32, unroll_length=20, batch_size=16)
    assert (twice.unroll_bytes, twice.gateway, twice.actor) == (2_000_000, 0.002, 1e-3)
    assert twice.parameters_bytes == COSTS.parameters_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nothing", "is not JSON"),
        ("[1, 2]", "has no costs"),
        ('{"env": 1.0}', "has no costs"),
        (json.dumps({**COSTS.plain(), "actor": -1}), "actor must be a number above 0, got -1"),
        (json.dumps({**COSTS.plain(), "update": "fast"}), "update must be a number above 0, got 'fast'"),
        (json.dumps({"actor": 1, "update": 1}), "has no 'cores'"),
        (json.dumps({**COSTS.plain(), "actor": None}), "has no 'actor'"),
        (json.dumps({"costs": {**COSTS.plain(), "envs": True}}), "envs must be a whole number above 0, got True"),
        (json.dumps({**COSTS.plain(), "cores": 1.5}), "cores must be a whole number above 0, got 1.5"),
        (json.dumps({**COSTS.plain(), "update": float("inf")}), "update must be a number above 0, got inf"),
        (json.dumps({**COSTS.plain(), "unroll_bytes": -1}), "unroll_bytes must be a whole number of at least 0"),
        (json.dumps({**COSTS.plain(), "device": 3}), "device must be a name such as cpu, got 3"),
    ],
)
def test_wrong_files_are_mistakes(tmp_path, text, expected):
    file = tmp_path / "costs.json"
    file.write_text(text)
    with pytest.raises(UserError, match=r"costs\.json") as error:
        costs_of(read_costs(file), file)
    assert expected in str(error.value)


def test_a_missing_file_is_a_mistake(tmp_path):
    with pytest.raises(UserError, match=r"missing\.json: No such file"):
        read_costs(tmp_path / "missing.json")
