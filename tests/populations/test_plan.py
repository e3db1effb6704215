"""A population file: what it stands for, and one line for each mistake in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from processes import command_line

from pronk.config import plain_yaml
from pronk.populations.plan import Population, parse_population, read_population
from pronk.types import UserError

PRIORS = {"optimiser.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}}
EXAMPLE = Path(__file__).parents[2] / "examples/population.yaml"


def plan(fixed: dict[str, Any] | None = None, **options: Any) -> Population:
    tree = {"base": "catch", **(fixed or {}), "population": {"priors": PRIORS, **options}}
    return parse_population(tree, "mine", "mine.yaml")


def test_members_start_with_different_settings_and_seeds_always_the_same_ones() -> None:
    first = plan(size=5, priors=PRIORS | {"loss.entropy_cost": {"start": [0.1, 0.01]}}).first_settings()
    again = plan(size=5, priors=PRIORS | {"loss.entropy_cost": {"start": [0.1, 0.01]}}).first_settings()
    assert first == again
    assert len({settings["optimiser.learning_rate"] for settings in first}) == 5
    assert plan({"run.seed": 7}, size=5).first_settings() != plan(size=5).first_settings()
    assert [plan({"run.seed": 7}).seed_of(member) for member in range(3)] == [7, 8, 9]


def test_rounds_are_long_by_default() -> None:
    long, short = plan({"run.total_steps": 40_000_000}), plan({"run.total_steps": 500_000})
    assert (long.ready_steps, long.burn_in_steps) == (2_000_000, 4_000_000)
    assert (short.ready_steps, short.burn_in_steps) == (100_000, 50_000)
    assert plan(ready_steps=7, burn_in_steps=0).ready_steps == 7


@pytest.mark.filterwarnings("ignore:no GPU")
def test_several_atari_games_are_compared_by_capped_human_normalised_scores() -> None:
    games = {"base": "atari", "env.tasks": [{"game": "pong"}, {"game": "breakout"}], "population": {"priors": PRIORS}}
    assert parse_population(games, "mine", "mine.yaml").metric == "human_normalised_capped"
    assert plan().metric == "episode_return"
    assert plan(metric="evaluation").metric == "evaluation"
    assert plan(metric="evaluation").config.evaluation.enabled


def test_the_example_is_valid() -> None:
    example = read_population(EXAMPLE)
    assert example.options.size == 6
    shown = re.findall(r"^  (?:# )?(\w+): ", EXAMPLE.read_text().partition("population:")[2], re.MULTILINE)
    assert {*shown, "priors"} == set(type(example.options).model_fields)  # every key


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"priors": {}}, "population.priors: expected {optimiser.learning_rate:"),
        ({"priors": {"network.hidden": {"choices": [[32], [64]]}}}, "network.hidden cannot differ between members"),
        ({"priors": {"optimiser.name": {"choices": ["adam"]}}}, "optimiser.name cannot differ between members"),
        ({"priors": {"loss.entropy_cost": {"low": 0, "high": 1, "log": True}}}, "with log, low must be above 0"),
        ({"priors": {"loss.entropy_cost": {"start": []}}}, "loss.entropy_cost must be {start: [1e-3, 1e-4]}"),
        ({"priors": {"loss.entropi": {"low": 0.1, "high": 0.2}}}, "loss.entropi"),
        ({"priors": {"loss.discount": {"low": 0.9, "high": 1.5}}}, "loss.discount"),
        ({"size": 1}, "population.size"),
        ({"scale": [5, 1]}, "population.scale: must be the returns that count as 0 and as 1"),
        ({"perturb_factor": 1}, "population.perturb_factor"),
        ({"sise": 3}, "size"),
    ],
)
def test_a_mistake_is_one_line(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as error:
        plan(**options)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_time_limit_is_refused() -> None:
    with pytest.raises(UserError, match=r"run\.total_seconds has no meaning in a population"):
        plan({"run.total_seconds": 60})


def test_the_command_line_refuses_in_one_line_and_with_code_2(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(plain_yaml.dump({"base": "catch", "population": {"priors": PRIORS, "size": 0}}))
    for arguments in ([file], [tmp_path], [tmp_path, "--resume"], [EXAMPLE, "--resume", "--run-dir", tmp_path / "no"]):
        ended = command_line("population", *arguments)
        assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err
    ended = command_line("population", EXAMPLE, "--workers", "many")
    assert (ended.code, "workers must be how many members" in ended.err) == (2, True)
    ended = command_line("train", EXAMPLE)
    assert (ended.code, "pronk population" in ended.err) == (2, True)
