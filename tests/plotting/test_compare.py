"""`pronk compare`: groups, scores, the table, the picture, and what a user may get wrong."""

import itertools
import json

import numpy as np
import pytest
from made_runs import made_run
from matplotlib.backends.backend_agg import FigureCanvasAgg
from processes import command_line

from pronk.metrics.statistics import Interval, bootstrap, iqm, probability_of_improvement
from pronk.plotting.against import against, draw_against
from pronk.plotting.compare import compare
from pronk.plotting.numbers import interval_text, score_text, share_text
from pronk.plotting.profiles import draw_comparison
from pronk.runs.directory import RunDirectory

SCORES = {"0.99": [40.0, 42.0, 44.0, 46.0, 90.0], "0.9": [10.0, 30.0, 43.0, 12.0, 20.0]}


def made_group(folder, discount, finals, *overrides, **more):
    for seed, final in enumerate(finals):
        name = f"{discount}-{'-'.join(overrides).replace('/', '')}-{seed}"
        settings = (f"loss.discount={discount}", f"run.seed={seed}", *overrides)
        made_run(folder / name, *settings, **{"returns": [1.0, final + 5, final], **more})


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Two settings with five seeds each, in the current directory's runs/."""
    monkeypatch.chdir(tmp_path)
    for discount, finals in SCORES.items():
        made_group(tmp_path / "runs", discount, finals)
    return tmp_path / "runs"


def result_of(*arguments):
    done = command_line("compare", *arguments, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


# ---- numbers


def test_groups_are_compared_by_the_statistics_of_their_scores(runs):
    first, second = result_of("runs")["groups"]
    columns = [np.array(SCORES[discount])[:, None] for discount in ("0.99", "0.9")]
    assert (first["group"], second["group"]) == ("discount=0.99", "discount=0.9")
    assert (len(first["runs"]), len(second["runs"])) == (5, 5)
    assert first["iqm"]["value"] == 44.0
    for group, scores in zip((first, second), columns, strict=True):
        assert list(group["iqm"].values()) == pytest.approx([*map(float, bootstrap(iqm, scores))])
        assert (group["mean"], group["median"]) == pytest.approx((scores.mean(), np.median(scores)))
        assert group["optimality_gap"] is None
    assert first["better_than_first"] is None
    by_hand = [*map(float, bootstrap(probability_of_improvement, columns[1], columns[0]))]
    assert second["better_than_first"]["value"] == pytest.approx(2 / 25)
    assert list(second["better_than_first"].values()) == pytest.approx(by_hand)


def test_the_metric_chooses_the_score(tmp_path):
    path = made_run(tmp_path / "run", returns=[0.0, 10.0, 30.0, 20.0], evaluations=[(1, 7.0), (3, 8.0), (4, None)])
    assert compare(path, metric="late").groups[0].mean == pytest.approx(21.5, abs=0.01)  # from 23 to 20
    scores = {metric: compare(path, metric=metric).groups[0].mean for metric in ("final", "best", "eval", "area")}
    assert scores == {"final": 20.0, "best": 30.0, "eval": 8.0, "area": pytest.approx((5 + 20 + 25) / 3, abs=0.01)}


def test_areas_end_where_the_shortest_run_of_the_task_ends(tmp_path):
    made_run(tmp_path / "short", "run.seed=1", returns=[10.0, 10.0])
    made_run(tmp_path / "long", "run.seed=2", returns=[20.0, 20.0, 900.0])
    assert compare(tmp_path, metric="area").groups[0].mean == pytest.approx(15.0)


def test_tasks_are_games_and_scores_are_human_normalised(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    references = {"pong": (-20.7, 14.6), "breakout": (1.7, 30.5)}
    for discount, quality in (("0.99", 0.5), ("0.9", 1.5)):
        for game, (random, human) in references.items():
            finals = [random + (human - random) * quality] * 3
            made_group(tmp_path / "runs", discount, finals, f"env.game={game}", source="pong")
    result = result_of("runs", "--normalise", "human")
    assert result["tasks"] == ["pong", "breakout"]
    low, high = result["groups"]
    assert (low["mean"], low["optimality_gap"]) == pytest.approx((0.5, 0.5))
    assert (high["mean"], high["optimality_gap"]) == pytest.approx((1.5, 0.0))
    assert list(low["scores"]) == ["pong", "breakout"]
    assert high["better_than_first"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    by_range = result_of("runs", "--normalise", "range")["groups"]
    assert [group["mean"] for group in by_range] == [0.0, 1.0]
    done = command_line("compare", "runs")
    assert "scores of different tasks are averaged as they are" in done.err
    assert " 6      2 " in done.out


def test_only_tasks_that_all_groups_played_are_compared(runs):
    made_run(runs / "alone", "loss.discount=0.9", source="catch", returns=[1.0])
    result = result_of("runs")
    assert result["tasks"] == ["CartPole-v1"]
    assert result["notes"] == ["catch is left out: not played by discount=0.99"]


def test_a_task_may_have_fewer_runs(runs):
    for discount in ("0.99", "0.9"):
        made_group(runs / "catch", discount, [0.5, 0.6, 0.7], source="catch", outcome="solved")
    first, second = compare(str(runs), normalise="range").groups
    assert (first.scores.shape, second.scores.shape) == ((5, 2), (5, 2))
    assert (first.fewest, len(first.runs)) == (3, 8)


def test_by_pools_what_else_differs_and_says_so(runs):
    made_group(runs, "0.9", [11.0, 12.0], "loss.entropy_cost=0.3")
    assert len(result_of("runs")["groups"]) == 3
    result = result_of("runs", "--by", "loss.discount")
    assert [len(group["runs"]) for group in result["groups"]] == [5, 7]
    assert result["notes"] == ["the runs also differ in loss.entropy_cost, which may be the cause of a difference"]


def test_along_a_setting_each_value_has_a_column_and_each_task_a_table(runs):
    for discount in SCORES:
        made_group(runs, discount, [5.0, 6.0, 7.0], "learner.extra_lag=200")
        made_group(runs / "catch", discount, [0.5, 0.6, 0.7], source="catch", outcome="solved")
    found = against(str(runs), "learner.extra_lag", by=["loss.discount"])
    assert found.values == [0, 200]
    (first, second) = found.cells["CartPole-v1"]["discount=0.9"]
    assert list(map(float, first)) == pytest.approx([*map(float, bootstrap(iqm, np.array(SCORES["0.9"])[:, None]))])
    assert float(second.value) == 6.0
    made_group(runs, "0.9", [8.0, 9.0], "learner.extra_lag=1000")
    done = command_line("compare", "runs", "--against", "learner.extra_lag", "--out", "x.png")
    assert done.code == 0, done.err
    rows = [line.split() for line in done.out.splitlines()]
    assert rows[0] == ["CartPole-v1", "extra_lag=0", "200", "1000"]
    assert [row[0] for row in rows[1:3]] == ["discount=0.99", "discount=0.9"]
    assert rows[1][-1] == "-"  # no run with this lag
    assert "catch is left out: not played by" in done.err
    assert draw_against(found).axes[0].get_title(loc="left") == "CartPole-v1"
    wrong = command_line("compare", "runs", "--against", "loss.name")
    assert wrong.code == 2
    assert "loss.name is impala in all of these runs; it must differ between them" in wrong.err


# ---- what is left out, and what is not certain


def test_runs_that_are_not_complete_are_named_and_left_out(runs):
    made_run(runs / "failed", "run.seed=7", returns=[1.0], outcome="failed", failure="out of memory\n  at line 3")
    made_run(runs / "killed", "run.seed=8", returns=[1.0], outcome=None)
    made_run(runs / "silent", "run.seed=9", returns=[None])
    made_run(runs / "running", "run.seed=10", returns=[1.0])
    made_run(runs / "broken", "run.seed=11", returns=[1.0])
    (runs / "broken" / "config.yaml").write_text("env: [")
    with RunDirectory(runs / "running").locked():
        done = command_line("compare", "runs")
    assert done.code == 0
    assert "runs/failed is left out: failed: out of memory\n" in done.err
    assert "runs/killed is left out: killed before its end" in done.err
    assert "runs/silent is left out: no return in its metrics" in done.err
    assert "runs/running is left out: still running" in done.err
    assert "runs/broken is left out: runs/broken/config.yaml is not valid YAML" in done.err
    assert result_of("runs/0.9--0", "runs/failed")["left_out"] == {"runs/failed": "failed: out of memory\n".strip()}


def test_few_runs_are_not_trusted(runs):
    done = command_line("compare", "runs/0.99--0", "runs/0.99--1", "runs/0.9--0")
    assert "discount=0.99: an interval of 2 runs is not trustworthy; train at least 3 seeds" in done.err
    assert "discount=0.9: an interval of 1 run is not trustworthy; train at least 3 seeds" in done.err
    result = result_of("runs/0.99--0", "runs/0.99--1", "runs/0.9--0")
    assert result["groups"][1]["iqm"] == {"value": 10.0, "low": None, "high": None}
    assert result["groups"][1]["better_than_first"] == {"value": 0.0, "low": None, "high": None}
    assert command_line("compare", "runs").err == ""
    four = command_line("compare", *[f"runs/0.9--{seed}" for seed in range(4)])
    assert four.err == "all runs: an interval of 4 runs is too narrow; train 5 or more\n"


def test_what_holds_for_all_groups_is_said_once(runs):
    done = command_line("compare", *[f"runs/{discount}--{seed}" for discount in SCORES for seed in (0, 1)])
    assert done.err == "all groups: an interval of 2 runs is not trustworthy; train at least 3 seeds\n"


def test_interrupted_and_repeated_runs_are_named(runs):
    made_run(runs / "again", "loss.discount=0.9", "run.seed=1", returns=[1.0, 2.0], outcome="interrupted")
    notes = result_of("runs")["notes"]
    assert "discount=0.9: some runs have the same seed, so they may not be independent" in notes
    assert "discount=0.9: runs/again was interrupted at 1,000 steps" in notes


# ---- the table and the picture


def test_the_table_is_plain_when_piped(runs):
    done = command_line("compare", "runs", "--normalise", "range")
    assert "\x1b" not in done.out
    head, first, second = done.out.splitlines()
    columns = ["group", "runs", "tasks", "IQM [95%]", "mean", "median", "gap", "P(> first) [95%]"]
    assert head.split() == " ".join(columns).split()
    assert first.split()[:3] == ["discount=0.99", "5", "1"]
    assert first.split()[-1] == "-"
    assert second.split()[-3:-1] == ["0.08", "[0.00,"]


def test_one_group_is_not_compared_with_itself(runs):
    (head, row) = command_line("compare", *[f"runs/0.9--{seed}" for seed in range(4)]).out.splitlines()
    assert "P(" not in head
    assert row.startswith("all runs")


@pytest.mark.parametrize(("ending", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_picture_is_written(runs, ending, magic):
    done = command_line("compare", "runs", "--out", f"x.{ending}")
    assert f"Drawn in x.{ending}" in done.out
    assert (runs.parent / f"x.{ending}").read_bytes().startswith(magic)


def test_the_picture_has_intervals_and_profiles(runs):
    result = compare(str(runs))
    left, right = draw_comparison(result).axes
    assert [label.get_text().splitlines()[0] for label in left.get_yticklabels()] == ["discount=0.99", "discount=0.9"]
    assert [bar.get_x() for bar in left.patches] == [
        pytest.approx(group.iqm.low) for group in compare(str(runs)).groups
    ]
    assert len(right.lines) == len(right.collections) == 2
    assert {line.get_ydata()[0] for line in right.lines} == {1.0}
    assert {line.get_ydata()[-1] for line in right.lines} == {0.0}
    assert [line.get_marker() for line in right.lines] == ["o", "s"]


def test_long_names_do_not_cover_the_panels(tmp_path):
    for index in range(7):
        keys = (f"loss.entropy_cost=0.00{index}", f"optimiser.learning_rate=0.000{index + 1}")
        made_group(tmp_path, f"0.9{index}", [float(index), 2.0 * index], *keys)
    figure = draw_comparison(compare(tmp_path))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    left, right = figure.axes
    boxes = [label.get_window_extent(renderer) for label in left.get_yticklabels()]
    assert all(box.x0 >= 0 for box in boxes)
    assert not any(one.overlaps(two) for one, two in itertools.pairwise(boxes))
    assert left.get_tightbbox(renderer).x1 <= right.get_tightbbox(renderer).x0
    assert len(right.collections) == 0  # bands of so many groups would hide one another


def test_numbers_have_the_digits_that_their_interval_allows():
    assert interval_text(Interval(184.23, 171.04, 195.3)) == "184 [171, 195]"
    assert interval_text(Interval(0.8712, 0.8101, 0.9333)) == "0.87 [0.81, 0.93]"
    assert interval_text(Interval(12345.6, 12000.0, 14000.0)) == "12,346 [12,000, 14,000]"
    assert interval_text(Interval(18.25, 17.1, 19.9)) == "18.2 [17.1, 19.9]"
    assert interval_text(Interval(500.0, 500.0, 500.0)) == "500 [500, 500]"
    assert interval_text(Interval(500.0, np.nan, np.nan)) == "500"
    assert interval_text(Interval(0.0, 0.0, 0.0)) == "0.00 [0.00, 0.00]"
    assert share_text(Interval(0.9, 0.75, 1.0)) == "0.90 [0.75, 1.00]"
    assert [score_text(value) for value in (0.0123, 3.14159, -21.0, 98765.4)] == ["0.0123", "3.14", "-21.0", "98,765"]


# ---- what a user may get wrong


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["runs", "--metric", "finel"],
            "metric must be one of final, best, eval, area, late, got 'finel'",
        ),
        (["runs", "--normalise", "humans"], "normalise must be one of none, human, range, got 'humans'"),
        (["runs", "--normalise", "human"], "needs one of the 57 Atari games that have a human score, got CartPole-v1"),
        (["runs", "--by", "loss.discont"], "no setting 'loss.discont' in these runs (did you mean 'loss.discount'?)"),
        (["runs", "--by", "env.id"], "no task was played by all groups"),
        (["runs", "--metric", "eval"], "nothing to compare: runs/0.99--0 is left out (never evaluated), and 9 more"),
        (["runs", "--out", "x.html"], "cannot write x.html: its name must end in .png, .svg, .pdf"),
        (["runs", "--out", "no/x.png"], "cannot write no/x.png: there is no directory no"),
        (["runs/0.98"], "no run directory runs/0.98"),
    ],
)
def test_a_mistake_is_one_line(runs, arguments, told):
    if "env.id" in arguments:
        made_run(runs / "catch", source="catch", returns=[1.0])
    code, out, err = command_line("compare", *arguments)
    assert (code, out) == (2, "")
    assert told in err
    assert len(err.splitlines()) == 1
