import re

import pytest
from made_runs import made_run
from matplotlib.backends.backend_agg import FigureCanvasAgg
from processes import command_line

from pronk.plotting import plot
from pronk.plotting.comparison import group_runs
from pronk.plotting.figures import Options, draw
from pronk.runs.reading import Run, find_runs
from pronk.types import UserError

RETURNS = [10.0, 20.0, 40.0, 30.0, 60.0]


@pytest.fixture
def runs(tmp_path):
    """Two settings with three and two seeds."""
    for seed in (1, 2, 3):
        made_run(tmp_path / "runs" / f"a{seed}", f"run.seed={seed}", returns=[seed * value for value in RETURNS])
    for seed in (1, 2):
        made_run(tmp_path / "runs" / f"b{seed}", f"run.seed={seed}", "loss.discount=0.9", returns=RETURNS)
    return tmp_path / "runs"


def drawn(path, **options):
    return draw(group_runs(find_runs([str(path)])), Options(**options))


def legend_of(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def thick(axis):
    return [line for line in axis.lines if line.get_linewidth() > 1.5]


# ---- the picture


def test_every_group_is_one_line_a_band_and_a_thin_line_for_each_seed(runs):
    figure = drawn(runs)
    titles = [axis.get_title("left") for axis in figure.axes]
    names = ["Mean return of recent episodes", "Throughput", "Policy lag", "Entropy"]
    assert [title.split(" (")[0] for title in titles] == names
    axis = figure.axes[0]
    assert len(thick(axis)) == len(axis.collections) == 2
    assert len([line for line in axis.lines if line.get_linewidth() < 0.7]) == 5
    mean = next(line for line in thick(axis) if max(line.get_ydata()) > 100)
    assert max(mean.get_ydata()) == pytest.approx(2 * 60.0, rel=0.01)  # of 1, 2 and 3 times the returns
    assert sorted(legend_of(figure)) == ["discount=0.9  (2 seeds)", "discount=0.99  (3 seeds)"]


def test_lines_can_be_told_apart_without_colours(tmp_path):
    for index in range(9):
        made_run(tmp_path / str(index), f"loss.discount=0.{index}", returns=RETURNS)
    lines = thick(drawn(tmp_path, only=("return",)).axes[0])
    assert len({(line.get_marker(), str(line._unscaled_dash_pattern)) for line in lines}) == 9
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == 9


@pytest.mark.parametrize(
    ("x", "end", "label"),
    [("steps", 4.0, "Thousand steps"), ("frames", 16.0, "Thousand frames"), ("time", 4.0, "Seconds")],
)
def test_the_axis_has_a_unit(runs, x, end, label):
    axis = drawn(runs, x=x, only=("return",)).axes[0]
    assert axis.get_xlabel() == label
    assert max(thick(axis)[0].get_xdata()) == end


def test_the_unit_fits_the_size(tmp_path):
    made_run(tmp_path / "run", returns=[float(value) for value in range(1500)])
    assert drawn(tmp_path).axes[0].get_xlabel() == "Million steps"
    assert drawn(tmp_path, x="time").axes[0].get_xlabel() == "Minutes"


def test_the_legend_and_the_title_do_not_cover_data(runs):
    figure = drawn(runs)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    boxes = [axis.get_window_extent(renderer) for axis in figure.axes]
    for one in (figure.legends[0].get_window_extent(renderer), figure._suptitle.get_window_extent(renderer)):
        assert not any(one.overlaps(box) for box in boxes)


def test_a_long_legend_leaves_the_panels_their_size(tmp_path):
    heights = []
    for count in (2, 40):
        for index in range(count):
            made_run(tmp_path / str(count) / str(index), f"loss.discount=0.{10 + index}", returns=RETURNS)
        figure = drawn(tmp_path / str(count))
        FigureCanvasAgg(figure).draw()
        heights.append(figure.axes[0].get_window_extent().height)
    assert heights[1] > 0.6 * heights[0]


def test_each_environment_has_a_panel_of_its_own(runs):
    made_run(runs / "c", source="catch", returns=[0.1, 0.2])
    titles = [axis.get_title("left") for axis in drawn(runs).axes]
    assert sorted(titles) == ["CartPole-v1", "catch"]


def test_a_run_of_one_line_is_a_point(tmp_path):
    made_run(tmp_path / "run", returns=[5.0])
    assert any(line.get_marker() == "o" for line in drawn(tmp_path).axes[0].lines)


def test_any_metric_can_be_asked_for(runs):
    figure = drawn(runs, only=("lag", "updates"))
    assert [axis.get_title("left") for axis in figure.axes] == ["Policy lag (updates)", "Updates"]


def test_the_interquartile_mean_and_its_interval_can_be_drawn(tmp_path):
    for seed, factor in enumerate([1.0, 1.0, 1.0, 1.0, 100.0]):  # one run of five is far off
        made_run(tmp_path / "runs" / f"{seed}", f"run.seed={seed}", returns=[factor * value for value in RETURNS])
    (line,) = thick(drawn(tmp_path / "runs", only=("return",), centre="iqm", band="bootstrap").axes[0])
    assert max(line.get_ydata()) == pytest.approx(60.0)
    legend = legend_of(drawn(tmp_path / "runs", centre="iqm", band="bootstrap"))
    assert legend == ["interquartile mean and 95% bootstrap interval of 5 seeds"]
    made_run(tmp_path / "runs" / "b", "loss.discount=0.9", returns=RETURNS)
    figure = drawn(tmp_path / "runs", band="bootstrap")
    assert legend_of(figure)[-1] == "lines and bands: mean and 95% bootstrap interval"


def test_runs_of_one_seed_are_not_counted_as_seeds(runs, monkeypatch):
    made_run(runs / "again", "run.seed=2", returns=RETURNS)
    assert "discount=0.99  (4 runs, 3 seeds)" in legend_of(drawn(runs))
    monkeypatch.chdir(runs.parent)
    done = command_line("plot", "runs", "--centre", "iqm", "--band", "bootstrap")
    assert "CartPole-v1, discount=0.99: 4 runs, 3 seeds" in done.out
    assert "CartPole-v1, discount=0.9: 2 seeds" in done.out


def test_no_panel_is_empty(tmp_path, monkeypatch):
    made_run(tmp_path / "runs" / "a", returns=RETURNS)
    made_run(tmp_path / "runs" / "b", source="catch", returns=[None, None])
    assert [axis.get_title("left") for axis in drawn(tmp_path / "runs").axes] == ["CartPole-v1"]
    monkeypatch.chdir(tmp_path)
    assert "catch has no values of return yet; that panel is left out" in command_line("plot", "runs").err
    (tmp_path / "runs" / "a" / "metrics.jsonl").write_text('{"env_steps": 9, "episode_return": 1.0, "policy_lag": 2}\n')
    titles = [axis.get_title("left") for axis in drawn(tmp_path / "runs" / "a").axes]
    assert titles == ["Mean return of recent episodes", "Policy lag (updates)"]
    code, _, err = command_line("plot", "runs/b", "--only", "return")
    assert (code, err.strip()) == (2, "error: nothing to plot: these runs have no values of return yet")


# ---- evaluations


def hollow(axis):
    return [line for line in axis.lines if line.get_markerfacecolor() == "white" and line.get_marker() != "None"]


def dashed(axis):
    return [line for line in axis.lines if line.get_linewidth() == 0.9 and line not in hollow(axis)]


def test_the_evaluations_of_a_run_are_hollow_marks_on_a_thin_line_in_its_return(tmp_path):
    made_run(tmp_path / "run", returns=RETURNS, evaluations=[(1, 25.0), (2, None), (4, 70.0)])
    figure = drawn(tmp_path)
    (marks,) = hollow(figure.axes[0])
    assert (list(marks.get_xdata()), list(marks.get_ydata())) == ([1.0, 4.0], [25.0, 70.0])
    assert marks.get_color() == thick(figure.axes[0])[0].get_color()
    assert marks.get_linestyle() == "--"
    assert [len(hollow(axis)) for axis in figure.axes] == [1, 0, 0, 0]
    assert legend_of(figure) == ["training", "evaluations"]
    assert list(hollow(drawn(tmp_path, x="time").axes[0])[0].get_xdata()) == [1.0, 4.0]
    assert list(hollow(drawn(tmp_path, x="frames").axes[0])[0].get_xdata()) == [4.0, 16.0]


def test_the_evaluations_of_seeds_have_a_mean_where_all_have_some(tmp_path):
    for seed, evaluations in enumerate([[(0, 10.0), (2, 30.0)], [(1, 40.0), (3, 60.0)], []]):
        made_run(tmp_path / f"{seed}", f"run.seed={seed}", returns=RETURNS, evaluations=evaluations)
    made_run(tmp_path / "never", "loss.discount=0.9", returns=RETURNS)
    figure = drawn(tmp_path)
    marks = hollow(figure.axes[0])
    assert sorted(y for line in marks for y in line.get_ydata()) == [10.0, 30.0, 40.0, 60.0]
    assert {line.get_linestyle() for line in marks} == {"None"}
    mean = max(dashed(figure.axes[0]), key=lambda line: len(line.get_xdata()))
    assert (mean.get_xdata()[0], mean.get_xdata()[-1]) == (1.0, 2.0)
    assert (mean.get_ydata()[0], mean.get_ydata()[-1]) == (30.0, 40.0)  # of 20 and 40, of 30 and 50
    assert legend_of(figure)[-1] == "evaluations of each seed, and their mean"


def test_evaluations_that_share_no_place_have_no_mean(tmp_path):
    for seed in (1, 2):
        made_run(tmp_path / f"{seed}", f"run.seed={seed}", returns=RETURNS, evaluations=[(seed, 5.0)])
    axis = drawn(tmp_path).axes[0]
    assert len(hollow(axis)) == 2
    assert [line for line in dashed(axis) if len(line.get_xdata()) > 2] == []


def test_many_evaluations_do_not_hide_the_line(tmp_path):
    made_run(tmp_path / "run", returns=RETURNS, evaluations=[(place, 5.0) for place in range(1000)])
    (marks,) = hollow(drawn(tmp_path).axes[0])
    assert len(marks.get_xdata()) / marks.get_markevery() <= 50


def test_nothing_is_said_of_evaluations_where_none_is_drawn(tmp_path):
    made_run(tmp_path / "run", returns=RETURNS, evaluations=[(1, 25.0)])
    figure = drawn(tmp_path, only=("lag",))
    assert hollow(figure.axes[0]) == []
    assert figure.legends == []


# ---- files


@pytest.mark.parametrize(
    ("ending", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("html", b"<!doctype")]
)
def test_the_ending_decides_the_format(runs, tmp_path, ending, magic):
    assert plot(runs, tmp_path / f"x.{ending}", only=["return"]).path.read_bytes().startswith(magic)


def test_equal_runs_give_equal_files(runs, tmp_path):
    one, two = (plot(runs, tmp_path / name).path.read_bytes() for name in ("one.svg", "two.svg"))
    assert one == two


def test_the_page_needs_nothing_from_elsewhere(runs, tmp_path):
    made_run(runs / "<c>", "loss.discount=0.5", returns=[1.0, 2.5])
    page = plot(runs, tmp_path / "page.html").path.read_text()
    assert re.findall(r"(?:src|href)=.https?://[^\"]*", page) == []
    assert "<script" not in page
    assert "&lt;c&gt;" in page
    assert "<c>" not in page
    assert page.count("<svg") == 1
    assert page.count("<tr>") == 7
    assert ">2.50<" in page


def test_without_a_name_the_picture_goes_to_the_run_or_here(runs, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert plot("a1").path == runs.relative_to(tmp_path) / "a1" / "plot.png"
    assert str(plot(["a1", "a2"]).path) == "plot.png"
    assert (runs / "a1" / "plot.png").exists()
    assert (tmp_path / "plot.png").exists()


# ---- what a user may get wrong


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["a1", "--x", "step"], "x must be one of steps, frames, time, got 'step' (did you mean 'steps'?)"),
        (["a1", "--band", "iqr"], "band must be one of range, std, bootstrap, got 'iqr'"),
        (["a1", "--centre", "median"], "centre must be one of mean, iqm, got 'median'"),
        (["a1", "--smooth", "2"], "smooth must be a share of the axis from 0 to 0.5, got 2"),
        (["a1", "--only", "retrun"], "no metric 'retrun' (did you mean 'return'?)"),
        (["a1", "--out", "x.jpg"], "cannot write x.jpg: its name must end in .png, .svg, .pdf, .html"),
        (["a1", "--out", "no/x.png"], "cannot write no/x.png: there is no directory no"),
        (["a1", "b1", "--label", "one"], "give a label for each of the 2 groups (discount=0.99; discount=0.9), got 1"),
        (["a7"], "no run directory a7 (did you mean 'a"),
        (["empty"], "nothing to plot: runs/empty has no metrics yet (killed)"),
    ],
)
def test_a_mistake_is_one_line(runs, monkeypatch, arguments, told):
    monkeypatch.chdir(runs.parent)
    made_run(runs / "empty", outcome=None)
    code, _, err = command_line("plot", *arguments)
    assert code == 2
    assert told in " ".join(err.split())
    assert len(err.splitlines()) == 1


def test_what_is_left_out_and_what_goes_on_is_said(runs, monkeypatch):
    monkeypatch.chdir(runs.parent)
    made_run(runs / "empty", outcome=None)
    with open(runs / "a1" / "metrics.jsonl", "a") as file:
        file.write('{"env_steps": 99')
    from pronk.runs.directory import RunDirectory

    with RunDirectory(runs / "b1").locked():
        done = command_line(
            "plot", "runs", "--out", "x.svg", "--label", "slow", "--label", "fast", "--title", "My title"
        )
    assert done.code == 0
    assert "runs/empty has no metrics yet (killed); left out" in done.err
    assert "runs/b1 is still running; drawn up to 4,000 steps" in done.err
    assert "CartPole-v1, slow: " in done.out
    assert "Drawn in x.svg" in done.out


def test_an_unreadable_configuration_is_named(tmp_path):
    path = made_run(tmp_path / "run", returns=[1.0])
    (path / "config.yaml").write_text("env: [")
    with pytest.raises(UserError, match=r"config.yaml is not valid YAML"):
        plot(path)
    assert Run(path).overview()["state"] == "finished"
