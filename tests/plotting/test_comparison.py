import pytest
from made_runs import made_run

from pronk.plotting.comparison import count_text, differences, group_by, group_runs, shown
from pronk.runs.reading import Run
from pronk.types import UserError


def grouped(tmp_path, *experiments, source="cartpole"):
    runs = [
        Run(made_run(tmp_path / str(index), *overrides, source=source)) for index, overrides in enumerate(experiments)
    ]
    return group_runs(runs)


def test_runs_that_differ_only_by_seed_are_one_group(tmp_path):
    groups = grouped(tmp_path, ["run.seed=1"], ["run.seed=2"], ["run.seed=1", "loss.discount=0.9"], ["run.seed=3"])
    assert [[run.name for run in group.runs] for group in groups] == [["0", "1", "3"], ["2"]]
    assert [group.label for group in groups] == ["discount=0.99", "discount=0.9"]


def test_large_numbers_are_short_and_huge_ones_harm_nobody():
    assert [shown(value) for value in (5000, 200_000, 2_000_000)] == ["5000", "200k", "2M"]
    assert shown(10**400) == str(10**400)


def test_one_group_needs_no_label(tmp_path):
    (group,) = grouped(tmp_path, ["run.seed=1"], ["run.seed=2"])
    assert (group.environment, group.label, group.hidden) == ("CartPole-v1", "", 0)


def test_a_label_says_the_section_where_the_word_alone_is_not_clear(tmp_path):
    groups = grouped(tmp_path, ["loss.kwargs.weight=1", "network.kwargs.weight=2"], [])
    assert groups[0].label == "network.kwargs.weight=2, loss.kwargs.weight=1"
    (name, _) = grouped(tmp_path / "names", ["optimiser=adam"], ["optimiser=rmsprop"])
    assert name.label == "optimiser.name=adam"


def test_many_differences_are_told_by_as_few_as_keep_the_groups_apart(tmp_path):
    same = ["loss.discount=0.9", "loss.entropy_cost=0.1", "optimiser.learning_rate=0.5"]
    groups = grouped(tmp_path, [], same, [*same, "run.total_steps=3000000"])
    assert len({group.label for group in groups}) == 3
    assert all(group.label.count("=") == 2 for group in groups)
    assert {group.hidden for group in groups} == {2}


def test_environments_are_told_apart_without_being_in_the_label(tmp_path):
    games = [["env.game=pong"], ["env.game=breakout"], ["env.game=pong", "loss.discount=0.9"]]
    groups = grouped(tmp_path, *games, source="pong")
    assert [group.environment for group in groups] == ["pong", "breakout", "pong"]
    assert [group.label for group in groups] == ["discount=0.99", "discount=0.99", "discount=0.9"]
    rows = grouped(tmp_path / "catch", ["env.kwargs.rows=5"], ["env.kwargs.rows=20"], source="catch")
    assert [group.environment for group in rows] == ["catch rows=5", "catch rows=20"]


def test_groups_by_a_chosen_setting(tmp_path):
    experiments = [["loss.discount=0.9"], ["loss.discount=0.9", "loss.entropy_cost=0.5"], ["env.kwargs.rows=7"]]
    runs = [Run(made_run(tmp_path / str(i), *some, source="catch")) for i, some in enumerate(experiments)]
    by_discount = group_by(runs, ["loss.discount"])
    assert [group.label for group in by_discount] == ["discount=0.9", "discount=auto"]
    assert [len(group.runs) for group in by_discount] == [2, 1]
    assert len({group.environment for group in by_discount}) == 2
    by_rows = group_by(runs, ["env.kwargs.rows"])
    assert [(group.environment, group.label) for group in by_rows] == [("catch", "rows=(none)"), ("catch", "rows=7")]
    with pytest.raises(UserError, match=r"no setting 'loss.discont' in these runs \(did you mean 'loss.discount'\?\)"):
        group_by(runs, ["loss.discont"])


def test_seeds_are_counted_once(tmp_path):
    (three,) = grouped(tmp_path / "a", ["run.seed=1"], ["run.seed=2"], ["run.seed=1"])
    (two,) = grouped(tmp_path / "b", ["run.seed=1"], ["run.seed=2"])
    assert (count_text([three]), count_text([two])) == ("3 runs, 2 seeds", "2 seeds")
    assert count_text([three, two]) == "2 to 3 runs, 2 seeds"


def test_numbers_are_short(tmp_path):
    groups = grouped(tmp_path, ["run.total_steps=2000000"], ["run.total_steps=400000"], ["run.total_steps=50"])
    assert [group.label for group in groups] == ["total_steps=2M", "total_steps=400k", "total_steps=50"]


def test_differences_are_a_table(tmp_path):
    runs = [Run(made_run(tmp_path / str(seed), f"run.seed={seed}")) for seed in (4, 5)]
    assert differences(runs) == {"run.seed": [4, 5]}
