"""From a sweep file to its members."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import command_line

from pronk.config import plain_yaml
from pronk.sweeps.expand import LONGEST_NAME, Options, Sweep, combinations, parse_sweep
from pronk.sweeps.sweeping import SWEEPS
from pronk.types import UserError

RATES = "optimiser.learning_rate"


def sweep(**options: Any) -> Sweep:
    return parse_sweep({"base": "catch", "sweep": options}, "mine", "mine.yaml")


def test_a_grid_with_a_list_and_seeds_is_every_combination() -> None:
    made = sweep(grid={RATES: [1e-3, 3e-3]}, list=[{"loss.name": "appo"}, {"network.core": "lstm"}], seeds=[7, 9])
    members = made.members()
    assert [member.name for member in members][:3] == [
        "loss=appo,learning_rate=0.001,seed=7",
        "loss=appo,learning_rate=0.001,seed=9",
        "loss=appo,learning_rate=0.003,seed=7",
    ]
    assert len(members) == 8
    assert members[-1].config.network.core == "lstm"
    assert members[-1].config.optimiser.learning_rate == 3e-3
    assert members[-1].config.run.seed == 9
    assert members[-1].label == "core=lstm, learning_rate=0.003"


def test_fixed_settings_are_in_every_member_and_swept_ones_win() -> None:
    tree = {
        "base": "catch",
        "transport": "local",
        "run": {"total_steps": 5},
        "loss": {"discount": 0.5},
        "sweep": {"grid": {"loss.discount": [0.8, 0.9]}},
    }
    members = parse_sweep(tree, "mine", "mine.yaml").members()
    assert [member.config.loss.discount for member in members] == [0.8, 0.9]
    assert {member.config.run.total_steps for member in members} == {5}
    assert {member.config.transport.name for member in members} == {"local"}
    assert [member.name for member in members] == ["discount=0.8", "discount=0.9"]


def test_seeds_alone_are_a_sweep_and_a_count_starts_at_one() -> None:
    assert [member.name for member in sweep(seeds=3).members()] == ["seed=1", "seed=2", "seed=3"]


def test_metric_evaluation_turns_it_on() -> None:
    assert sweep(metric="evaluation").members()[0].config.evaluation.enabled


def test_a_search_proposes_its_members_later() -> None:
    made = sweep(search={RATES: {"low": 1e-4, "high": 1e-2, "log": True}}, trials=2, seeds=2)
    assert made.members() == []
    members = made.of_trial(4, {RATES: 1e-3})
    assert [member.name for member in members] == ["trial-004,seed=1", "trial-004,seed=2"]
    assert members[0].config.optimiser.learning_rate == 1e-3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gird": {}}, ["sweep.gird", "sweep.grid"]),
        ({"grid": {"optimiser.learning_rat": [1]}}, ["optimiser.learning_rat", "'optimiser.learning_rate'"]),
        ({"grid": {RATES: [0.1, -1]}}, [RATES, "-1"]),
        ({"grid": {RATES: 0.1}}, ["sweep.grid", RATES, "0.1"]),
        ({"grid": {RATES: [0.1, 0.1]}}, [RATES, "0.1", "twice"]),
        ({"grid": {"loss.correction": ["vtracee"]}}, ["loss.correction", "vtracee", "'vtrace'"]),
        ({"grid": {"run.seed": [1]}}, ["run.seed", "sweep.seeds"]),
        ({"grid": {RATES: [0.1]}, "list": [{RATES: 1.0}]}, [RATES, "grid", "list"]),
        ({"list": 3}, ["sweep.list", "3"]),
        ({"list": [{}, {}]}, ["sweep.list", "twice"]),
        ({"seeds": 0}, ["sweep.seeds", "0"]),
        ({"seeds": [1, 1]}, ["sweep.seeds", "[1, 1]"]),
        ({"at_a_time": 0}, ["sweep.at_a_time", "0"]),
        ({"metric": "evaluat"}, ["sweep.metric", "evaluat", "'evaluation'"]),
        ({"search": {RATES: {"low": 1, "high": 2}}}, ["sweep", "trials"]),
        ({"trials": 3}, ["sweep", "trials", "search"]),
        ({"search": {RATES: {"lo": 1}}, "trials": 1}, [RATES, "'lo'", "'low'"]),
        ({"search": {RATES: {"low": 2, "high": 1}}, "trials": 1}, [RATES, "2", "1"]),
        ({"search": {RATES: {"low": 0, "high": 1, "log": True}}, "trials": 1}, [RATES, "0"]),
        ({"search": {RATES: {"low": -1.0, "high": 1.0}}, "trials": 1}, [RATES, "-1.0"]),
        ({"search": {"network.core": {"choices": ["none", "lstn"]}}, "trials": 1}, ["network.core", "lstn", "'lstm'"]),
        ({"search": {RATES: {"choices": [1]}}, "trials": 1, "sampler": "tpee"}, ["sweep.sampler", "tpee", "'tpe'"]),
        ({"grid": {"actors.envs": [5]}, "list": [{"learner.batch_size": 7}]}, ["learner.batch_size", "7"]),
    ],
)
def test_a_mistake_is_one_line_that_names_key_and_value(options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        sweep(**options)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("mine")
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("base: catch\nrun: {total_steps: 5}", ["no section `sweep`", "pronk train"]),
        ("base: catch\nsweeep: {seeds: 3}", ["sweep", "'sweeep'"]),
        ("sweep: {seeds: 3}", ["base is missing"]),
        ("base: cach\nsweep: {seeds: 3}", ["'cach'", "'catch'"]),
        ("base: catch\nrun: {seed: 3}\nsweep: {seeds: 3}", ["run.seed", "sweep.seeds"]),
        ("base: catch\nrun: {total_stps: 3}\nsweep: {seeds: 3}", ["run.total_stps", "run.total_steps"]),
        ("alg_para: {}\nsweep: {}", ["XingTian", "pronk convert"]),
    ],
)
def test_a_wrong_file_ends_with_exit_code_2_before_anything_is_written(
    text: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(text)
    ended = command_line("sweep", "mine.yaml")
    assert ended.code == 2
    assert len(ended.err.strip().splitlines()) == 1
    for word in words:
        assert word in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


def test_a_dry_run_lists_the_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("base: catch\nsweep: {grid: {loss.name: [impala, appo]}, seeds: 2}")
    ended = command_line("sweep", "mine.yaml", "--dry-run")
    assert ended.code == 0
    assert ended.out.splitlines() == [
        *(f"loss={loss},seed={seed}" for loss in ("impala", "appo") for seed in (1, 2)),
        "4 members",
    ]
    assert not (tmp_path / "runs").exists()
    train = command_line("train", "mine.yaml")
    assert train.code == 2
    assert "pronk sweep mine.yaml" in train.err


values = st.one_of(
    st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=200), st.booleans()
)
keys = st.sampled_from(["env.kwargs.a", "env.kwargs.b", "env.kwargs.size"])
grids = st.dictionaries(keys, st.lists(values, min_size=1, max_size=4, unique_by=json.dumps), max_size=3)


@settings(max_examples=50, deadline=None)
@given(grids, st.lists(st.integers(0, 99), min_size=1, max_size=3, unique=True))
def test_names_are_unique_safe_and_do_not_depend_on_other_members(grid: dict[str, Any], seeds: list[int]) -> None:
    made = Sweep("mine", "catch", {}, Options(grid=grid, seeds=seeds))
    found = [(settings, seed) for settings in combinations(made.options) for seed in seeds]
    size = 1
    for each in grid.values():
        size *= len(each)
    assert len(found) == size * len(seeds)
    names = [member.name for member in made._named(found)] if size < 6 else []
    assert len(set(names)) == len(names)
    for name in names:
        assert re.fullmatch(r"[\w.+=,-]+", name, re.ASCII)
        assert len(name) <= LONGEST_NAME + 9


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=3, unique=True), st.integers(1, 3))
def test_the_copy_in_the_directory_is_the_same_sweep(rates: list[float], seeds: int) -> None:
    made = sweep(grid={RATES: rates}, seeds=seeds)
    again = parse_sweep(plain_yaml.parse(SWEEPS.as_yaml(made)), "mine", "mine.yaml")
    assert again == made
    assert [one.config for one in again.members()] == [one.config for one in made.members()]
    assert [one.config.optimiser.learning_rate for one in made.members()][::seeds] == rates
