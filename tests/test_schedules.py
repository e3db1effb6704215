import json

import numpy as np
import pytest

from pronk.config import load_config, resolve
from pronk.schedules import exploration, factor, learning_rate, progress_of
from pronk.starting import train
from pronk.types import UserError

POINTS = [[100.0, 1.0], [200.0, 0.5], [200.0, 0.2], [400.0, 0.0]]


def resolved(*overrides):
    return resolve(load_config("CartPole-v1", list(overrides)))


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [1, 1, 1, 1]),
        ("linear", [1, 0.75, 0.5, 0]),
        ("cosine", [1, 0.853553, 0.5, 0]),
        ("late", [1, 1, 1, 0]),
    ],
)
def test_shapes(schedule, expected):
    assert [factor(schedule, done, 0) for done in (0.0, 0.25, 0.5, 1.0)] == pytest.approx(expected, abs=1e-6)


def test_points_are_joined_by_straight_lines_and_may_jump():
    steps = np.array([0, 100, 150, 199, 201, 300, 400, 10**9])
    ours = [factor(POINTS, 0.0, int(step)) for step in steps]
    assert ours == pytest.approx(np.interp(steps, *zip(*POINTS, strict=True)))
    assert factor(POINTS, 0.0, 200) == 0.2
    assert factor([[50.0, 0.3]], 0.0, 7) == 0.3


def test_progress_is_that_of_the_limit_which_comes_first():
    config = resolved("run.total_steps=1000", "run.total_seconds=10")
    assert progress_of(config, 100, 5.0) == 0.5
    assert progress_of(config, 900, 5.0) == 0.9
    assert progress_of(config, 2000, 5.0) == 1.0
    assert progress_of(resolved("run.total_steps=1000"), 100, 1e9) == 0.1


def test_each_value_has_its_own_schedule():
    config = resolved("optimiser.learning_rate=0.4", "loss.entropy_schedule=[[0, 1], [1e3, 0]]")
    assert learning_rate(config, 0.25, 500) == pytest.approx(0.3)  # linear is the default
    assert exploration(config, 0.25, 500) == pytest.approx(0.5)


@pytest.mark.parametrize(("loss", "left"), [("appo", 0.5), ("impala", 1.0)])
def test_exploration_falls_at_the_end_by_default_but_not_in_the_paper(loss, left):
    config = resolved(f"loss.name={loss}")
    assert exploration(config, 0.7, 500) == pytest.approx(1.0)
    assert exploration(config, 0.85, 500) == pytest.approx(left)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "cosinus",
            "optimiser.schedule: 'cosinus' is not one of constant, linear, cosine, late .did you mean 'cosine'",
        ),
        ("[]", "optimiser.schedule: .* is not a list of .steps, factor."),
        ("[0, 1]", "optimiser.schedule: .* is not a list of .steps, factor."),
        ("[[0, -1]]", "optimiser.schedule: .*two numbers, at least 0"),
        ("[[0, yes]]", "optimiser.schedule: .*two numbers, at least 0"),
        ("[[9, 1], [5, 0]]", "optimiser.schedule: the steps .9, 5. must not fall"),
    ],
)
def test_a_wrong_schedule_is_named_in_one_line(text, message):
    with pytest.raises(UserError, match=message) as caught:
        resolved(f"optimiser.schedule={text}")
    assert "\n" not in str(caught.value)


def test_points_survive_the_configuration_file():
    config = load_config("CartPole-v1", ["loss.entropy_schedule=[[0, 1], [1e3, 0]]"])
    assert resolve(config).from_yaml(resolve(config).to_yaml()).loss.entropy_schedule == [[0, 1], [1000, 0]]


@pytest.mark.parametrize("loss", ["impala", "appo"])
@pytest.mark.parametrize("cost", ["entropy_cost", "barrier_cost"])
def test_every_loss_takes_the_scheduled_costs(tmp_path, loss, cost):
    one_line = ["run.total_steps=1000", "run.log_every_seconds=1000"]  # its loss is the mean of all updates
    overrides = ["transport=local", *one_line, f"loss.name={loss}", "learner.passes=1"]
    runs = {}
    for weight, schedule in [(0.5, "constant"), (1.0, "[[0, 0.5]]"), (1.0, "constant")]:
        others = {"entropy_cost": 0.0, "barrier_cost": 0.0} | {cost: weight, "entropy_schedule": schedule}
        settings = [f"loss.{name}={value}" for name, value in others.items()]
        train(load_config("catch", [*overrides, *settings]), run_dir=tmp_path / f"{weight}-{schedule}")
        last = json.loads((tmp_path / f"{weight}-{schedule}/metrics.jsonl").read_text().splitlines()[-1])
        runs[weight, schedule] = last["loss"]
    assert runs[1.0, "[[0, 0.5]]"] == runs[0.5, "constant"] != runs[1.0, "constant"]


def test_a_run_records_both_values(tmp_path):
    overrides = ["transport=local", "run.total_steps=4000", "run.log_every_seconds=0.01", "optimiser.schedule=cosine"]
    config = load_config("catch", [*overrides, "loss.entropy_cost=0.02", "loss.entropy_schedule=[[0, 1], [4e3, 0.5]]"])
    train(config, run_dir=tmp_path / "run")
    last = json.loads((tmp_path / "run/metrics.jsonl").read_text().splitlines()[-1])
    assert 0 < last["learning_rate"] < 0.1 * config.optimiser.learning_rate
    assert last["entropy_cost"] == pytest.approx(0.01, rel=0.1)
    assert 0.8 < last["progress"] <= 1


def test_a_run_with_a_time_limit_anneals_by_time(tmp_path):
    overrides = ["transport=local", "run.total_steps=1e12", "run.total_seconds=1.5", "run.log_every_seconds=0.01"]
    config = load_config("catch", overrides)
    train(config, run_dir=tmp_path / "run")
    last = json.loads((tmp_path / "run/metrics.jsonl").read_text().splitlines()[-1])
    assert last["learning_rate"] < 0.5 * config.optimiser.learning_rate
