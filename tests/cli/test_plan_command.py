"""`pronk plan`: from costs to a table, and mistakes in one line."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from pronk.config import load_config, resolve
from pronk.planning.measuring import measure_gateway, processor_seconds, sizes_of
from pronk.types import UserError

COSTS = {
    "cores": 4,
    "envs": 16,
    "unroll_length": 20,
    "batch_size": 16,
    "actor": 1e-4,
    "update": 1e-5,
    "unroll_bytes": 30_000,
    "parameters_bytes": 20_000,
    "frames_per_step": 2,
    "gateway": 1e-4,
    "send": 1e-4,
    "pull": 1e-4,
    "exchange": 1e-3,
}
SHAPE = ("catch", "actors.count=2", "actors.envs=16")


@pytest.fixture
def costs(tmp_path):
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(COSTS))
    return path


def planned(cli, *arguments):
    code, out, err = cli("plan", *SHAPE, "--json", *arguments)
    assert code == 0, err
    return json.loads(out)["plan"]


def test_a_configuration_as_it_is(cli, costs):
    plan = planned(cli, "--costs", costs)
    assert (plan["actors"], plan["learners"], plan["gateways"], plan["machines"]) == (2, 1, 0, 1)
    assert plan["steps_per_second"] == pytest.approx(20_000, rel=0.02)
    assert plan["frames_per_second"] == pytest.approx(2 * plan["steps_per_second"])
    assert plan["bottleneck"] == "actors"


def test_a_target_on_many_machines(cli, costs):
    plan = planned(cli, "--costs", costs, "--target", 400_000, "--frames", "--cores", 8, "--bandwidth", 40)
    assert plan["reached"]
    assert plan["target"] == 200_000
    assert plan["learners"] >= 2
    assert plan["gateways"] == plan["learners"]
    assert plan["machines"] == plan["learners"] + plan["actor_machines"]
    assert plan["settings"].startswith(f"actors.count=0 learners.count={plan['learners']}")
    assert plan["notes"] == []


def test_the_table_names_what_matters(cli, costs):
    code, out, _ = cli("plan", *SHAPE, "--costs", costs, "--target", 60_000)
    assert code == 0
    for word in ("actors", "learners", "gateways", "predicted steps/s", "frames/s", "policy lag", "busy", "bottleneck"):
        assert word in out
    assert "settings: actors.count=0" in out


def test_a_target_out_of_reach_is_reported(cli, costs):
    code, out, _ = cli("plan", *SHAPE, "--costs", costs, "--target", 1e6, "--machines", 1)
    assert code == 0
    assert "% of the target" in out


def test_costs_of_another_shape_and_of_a_bench_are_mentioned(cli, costs):
    plan = planned(cli, "--costs", costs, "actors.unroll_length=40")
    assert "actors.unroll_length 20, not 40" in plan["notes"][0]
    Path("bench.json").write_text(json.dumps({"env": 1e4, "inference": 1e4, "learner": 1e5, "cores": 2}))
    plan = planned(cli, "--costs", "bench.json", "--target", 50_000)
    assert "bench.json has the parts alone" in plan["notes"][0]
    assert "no gateway" in plan["notes"][1]


def test_a_learner_that_was_not_measured_is_mentioned(cli, costs):
    costs.write_text(json.dumps({**COSTS, "device": "given"}))
    assert "--learner-rate that was given: 100,000 steps/s" in planned(cli, "--costs", costs)["notes"][0]
    assert planned(cli, "--costs", costs, "--learner-rate", 5000)["notes"] == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--target", "0"], "--target must be a finite number above 0, got 0"),
        (["--target", "nan"], "--target must be a finite number above 0, got nan"),
        (["--target", "inf"], "--target must be a finite number above 0, got inf"),
        (["--bandwidth", "-1"], "--bandwidth must be a finite number above 0"),
        (["--learner-rate", "0"], "--learner-rate must be a finite number above 0"),
        (["--machines", "0", "--target", "10"], "--machines must be at least 1, got 0"),
        (["--machines", "2"], "--machines needs --target"),
        (["--cores", "0"], "--cores must be at least 1, got 0"),
        (["--seconds", "0"], "--seconds must be finite and at least 1, got 0"),
        (["--costs", "missing.json"], "missing.json"),
        (["transport=local"], "transport=local plays and learns in one thread"),
        (["actors.inference=central"], "actors.inference=central cannot be planned"),
        (["actors.count=0", "gateway.address=127.0.0.1:0"], "actors.count=0 leaves no actor here to predict"),
        (["actors.envs=1", "learner.batch_size=64"], "joins 64 unrolls of 1 environments"),
        (["--cots", "x"], "--cots"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_one_line(cli, arguments, expected):
    code, out, err = cli("plan", *SHAPE, *arguments)
    assert (code, out) == (2, "")
    assert expected in err
    assert err.count("\n") == 1


def test_what_is_learnt_on_fewer_learners_than_configured_is_in_the_settings(cli, costs):
    plan = planned(cli, "learners.count=2", "learner.batch_size=32", "--costs", costs, "--target", 5000)
    assert plan["learners"] == 1
    assert plan["settings"].endswith("learners.count=1 learner.batch_size=16")


def test_no_plan_has_more_machines_than_there_are(cli, costs):
    plan = planned(cli, "--costs", costs, "--target", 1e9, "--machines", 10, "--cores", 1)
    assert not plan["reached"]
    assert plan["machines"] <= 10


def test_ctrl_c_ends_the_measurement_of_the_gateway(cli, monkeypatch):
    """A Ctrl-C that was only noted would be lost: nothing checks for it here."""
    monkeypatch.setattr("pronk.actors.gateway.GatewayProcess.start", lambda self: signal.raise_signal(signal.SIGINT))
    config = resolve(load_config("catch"))
    _, layout, parameters = sizes_of(config)
    with pytest.raises(KeyboardInterrupt):
        measure_gateway(config, layout, parameters, Path.cwd(), 1.0, print)


def test_environments_that_make_no_whole_teams_are_a_mistake():
    config = load_config("pettingzoo:scripted:Relay", ["actors.envs=16", "learner.batch_size=16"])
    with pytest.raises(UserError, match="must be a multiple of 3"):
        sizes_of(resolve(config))


def test_where_the_kernel_does_not_say_what_a_process_has_used_the_cost_is_unknown():
    assert processor_seconds(os.getpid()) >= 0
    assert processor_seconds(None) is None


def test_costs_are_measured_here_and_serve_as_a_file(cli):
    """Real processes: actors and updates, a gateway and its sender, two learners."""
    shape = ("catch", "actors.count=2", "actors.envs=4", "learner.batch_size=8", "transport=grpc", "learners.count=2")
    code, out, err = cli("plan", *shape, "--json", "--seconds", "1")
    assert code == 0, err
    made = json.loads(out)
    costs = made["costs"]
    assert all(costs[name] > 0 for name in ("actor", "update", "gateway", "send", "pull"))
    assert costs["exchange"] >= 0
    assert 0 < costs["crowding"] <= 1
    assert (costs["envs"], costs["batch_size"], costs["unroll_length"]) == (4, 4, 20)
    assert (made["plan"]["learners"], made["plan"]["gateways"]) == (2, 2)
    assert made["plan"]["steps_per_second"] > 0
    Path("costs.json").write_text(out)
    code, again, _ = cli("plan", *shape, "--json", "--costs", "costs.json")
    assert code == 0
    assert json.loads(again) == made
