"""How curves are drawn: panels, colours, dashes and markers, axes and their units, the legend.

Lines differ in colour, dash and marker, so that they can be read in greyscale and by people who see colours
differently. The colours are those of Okabe and Ito (https://jfly.uni-koeln.de/color/).
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pronk.config.errors import nearest
from pronk.plotting.comparison import Group, count_text
from pronk.plotting.curves import Curve, curve_of, summarised
from pronk.runs.reading import is_number
from pronk.types import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Panel(NamedTuple):
    """A metric that can be asked for by a short name."""

    metric: str
    title: str


RETURN = "episode_return"
PANELS = {
    "return": Panel(RETURN, "Mean return of recent episodes"),
    "throughput": Panel("steps_per_second", "Throughput (steps/s)"),
    "lag": Panel("policy_lag", "Policy lag (updates)"),
    "entropy": Panel("entropy", "Entropy (nats)"),
    "length": Panel("episode_length", "Episode length (steps)"),
    "waits": Panel("learner_waits", "Learner waits (share of time)"),
}
USUAL = ("return", "throughput", "lag", "entropy")

AXES = {"steps": "env_steps", "frames": "frames", "time": "wall_seconds"}
COUNTS = [(1e9, "billion "), (1e6, "million "), (1e3, "thousand "), (1.0, "")]
TIMES = [(3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds")]

COLOURS = ("#0072B2", "#E69F00", "#000000", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")


CENTRE_NAMES = {"mean": "mean", "iqm": "interquartile mean"}
BAND_NAMES = {"range": "range", "std": "standard deviation", "bootstrap": "95% bootstrap interval"}
USUAL_SMOOTH = 0.05
MARKS = 6  # on a line
FEW_ROWS, LEGEND_ROW = 4, 0.19  # a legend of more rows makes the figure higher, by so many inches for each
MOST_TASKS = 12  # that have a panel each
MOST_IN_ROW = 4  # small panels
EVALUATED: dict[str, Any] = {"linestyle": (0, (2, 2)), "linewidth": 0.9, "markersize": 4.5, "markerfacecolor": "white"}
EVALUATION_MARKS = 50  # of a group, at most about


@dataclass(frozen=True)
class Options:
    """How the picture is drawn."""

    x: str = "steps"
    smooth: float | None = None
    """Share of the horizontal axis that every point is averaged over. None: 0 for returns and lengths, which are means
    already, and USUAL_SMOOTH for everything else, which is measured from one second to the next."""
    band: str = "range"
    """Around the line of several seeds: their `range`, one standard deviation (`std`), or the 95% bootstrap interval of
    the line (`bootstrap`)."""
    centre: str = "mean"
    """The line of several seeds: their `mean`, or their interquartile mean (`iqm`)."""
    title: str | None = None
    only: tuple[str, ...] = ()


def draw(groups: list[Group], options: Options) -> Figure:
    """Draw the figure: the return on top and the other panels below it, or one panel per environment."""
    from matplotlib.figure import Figure

    environments = list(dict.fromkeys(group.environment for group in groups))
    cells = cells_of(groups, options)
    wanted = list(dict.fromkeys(name for name, _ in cells))
    panels = {name: panel_of(name, groups) for name in wanted}
    with styled():
        figure = Figure(layout="constrained")
        if not options.only and len(environments) == 1 and len(cells) > 1:
            axes = one_over_the_rest(figure, len(cells))
        else:
            columns = len(environments) if len(wanted) > 1 and 1 < len(environments) <= 4 else min(len(cells), 3)
            axes = side_by_side(figure, len(cells), columns)
        unit = unit_of(groups, options.x)
        for axis, (name, environment) in zip(axes, cells, strict=True):
            shown = [group for group in groups if group.environment == environment]
            fill(axis, panels[name], shown, styles(groups), unit, options)
            several = len(environments) > 1
            axis.set_title(environment if several and len(wanted) == 1 else panels[name].title)
            if several and len(wanted) > 1:
                axis.set_title(f"{environment}: {panels[name].title}")
        heading(figure, groups, options, [panels[name] for name in wanted])
    return figure


STYLE = {
    "font.size": 9.0,
    "font.family": "DejaVu Sans",
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#d9d9d9",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.7,
    "lines.solid_capstyle": "round",
    "svg.hashsalt": "pronk",
}


def styled() -> contextlib.AbstractContextManager[None]:
    """Use Pronk's style while figures are drawn or saved, whatever matplotlib is configured to."""
    from matplotlib import rc_context

    return rc_context(STYLE)  # type: ignore[arg-type]  # its keys are a long list of literals


def wanted_cells(groups: list[Group], options: Options) -> list[tuple[str, str]]:
    """The panels that are asked for, each for every environment: (name, environment)."""
    environments = list(dict.fromkeys(group.environment for group in groups))
    usual = ("return", *task_panels(groups), *USUAL[1:]) if len(environments) == 1 else ("return",)
    return [(name, environment) for name in options.only or usual for environment in environments]


def task_panels(groups: list[Group]) -> list[str]:
    """Return a panel for the return of each task, if there are several tasks, but not too many."""
    names = dict.fromkeys(f"{RETURN}/{task}" for group in groups for run in group.runs for task in run.tasks)
    return list(names)[:MOST_TASKS]


def cells_of(groups: list[Group], options: Options) -> list[tuple[str, str]]:
    """Return those of `wanted_cells` that have something to draw; raise where none has."""
    for name in options.only:
        panel_of(name, groups)  # raises, if there is no such metric
    wanted = wanted_cells(groups, options)
    cells = [(name, place) for name, place in wanted if has_values(groups, name, place)]
    if not cells:
        names = ", ".join(dict.fromkeys(name for name, _ in wanted))
        raise UserError(f"nothing to plot: these runs have no values of {names} yet")
    return cells


def has_values(groups: list[Group], name: str, environment: str) -> bool:
    """Whether a panel of an environment would show anything."""
    metric = PANELS[name].metric if name in PANELS else name
    runs = [run for group in groups if group.environment == environment for run in group.runs]
    return any(is_number(line.get(metric)) for run in runs for line in run.metrics) or (
        metric == RETURN and any(run.evaluations for run in runs)
    )


def panel_of(name: str, groups: list[Group]) -> Panel:
    """Return a panel by its short name, or by the name of any metric."""
    known = {metric for group in groups for run in group.runs for metric in (*run.metrics[0], *run.last)}
    task = name.partition(f"{RETURN}/")[2]
    panel = PANELS.get(name, Panel(name, task or name.replace("_", " ").capitalize()))
    if panel.metric not in known:
        choices = [*PANELS, *sorted(known - {panel.metric for panel in PANELS.values()} - set(AXES.values()))]
        raise UserError(f"no metric {name!r}{nearest(name, choices)}; there are {', '.join(choices)}")
    return panel


def one_over_the_rest(figure: Figure, count: int) -> list[Axes]:
    """A wide panel, and small ones below it, in one row or several."""
    rows = -(-(count - 1) // MOST_IN_ROW)
    columns = -(-(count - 1) // rows)
    figure.set_size_inches(7.2, 3.15 + 1.85 * rows)
    grid = figure.add_gridspec(1 + rows, columns, height_ratios=(1.7, *[1.0] * rows))
    wide = figure.add_subplot(grid[0, :])
    return [wide, *(figure.add_subplot(grid[1 + i // columns, i % columns]) for i in range(count - 1))]


def side_by_side(figure: Figure, count: int, columns: int) -> list[Axes]:
    """Panels of one size, row by row."""
    rows = -(-count // columns)
    figure.set_size_inches(*((6.0, 3.8) if count == 1 else (2.9 * columns + 0.6, 2.4 * rows + 0.6)))
    grid = figure.add_gridspec(rows, columns)
    return [figure.add_subplot(grid[i // columns, i % columns]) for i in range(count)]


def styles(groups: list[Group]) -> dict[str, dict[str, Any]]:
    """Return a style for each label, the same in every panel."""
    labels = dict.fromkeys(group.label for group in groups)
    return {label: look_of(index, marked=len(labels) > 1) for index, label in enumerate(labels)}


def look_of(index: int, marked: bool = True) -> dict[str, Any]:
    """Return the style of the line with this number."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": DASHES[index % len(DASHES)],
        "marker": MARKERS[index % len(MARKERS)] if marked else None,
    }


def unit_of(groups: list[Group], x: str) -> tuple[float, str]:
    """Return the scale and the name of the horizontal axis, such as (1e6, "million steps")."""
    end = max((run.last.get(AXES[x]) or 0 for group in groups for run in group.runs), default=0)
    if x == "time":
        return next((unit for unit in TIMES if end >= 2 * unit[0]), TIMES[-1])
    scale, word = next((unit for unit in COUNTS if end >= unit[0]), COUNTS[-1])
    return scale, f"{word}{x}"


def fill(
    axis: Axes,
    panel: Panel,
    groups: list[Group],
    looks: dict[str, dict[str, Any]],
    unit: tuple[float, str],
    options: Options,
) -> None:
    """One panel: a thin line for every seed, a thick one for their centre, a band around it."""
    metric, _, task = panel.metric.partition("/")
    averaged = metric in (RETURN, "episode_length")
    smooth = options.smooth if options.smooth is not None else 0.0 if averaged else USUAL_SMOOTH
    for index, group in enumerate(groups):
        look = looks[group.label]
        curves = [curve_of(run.metrics, AXES[options.x], panel.metric, smooth) for run in group.runs]
        curves = [(x / unit[0], y) for x, y in curves if len(x)]
        if not curves:
            continue
        if len(curves) > 1:
            for x, y in curves:
                axis.plot(x, y, color=look["color"], linewidth=0.6, alpha=0.45)
        x, centre, low, high = summarised(curves, options.band, options.centre)
        if not len(x):
            continue
        if len(curves) > 1:
            axis.fill_between(x, low, high, color=look["color"], alpha=0.18, linewidth=0)
        shift = (index + 0.5) / len(groups)  # marks at other places than those of other lines, which may lie below
        marks = np.searchsorted(x, x[0] + (np.arange(MARKS) + shift) / MARKS * (x[-1] - x[0]))
        few = len(x) <= MARKS
        axis.plot(x, centre, **look, markevery=None if few else marks.tolist(), markersize=4.5, markeredgewidth=0)
        if few and not look["marker"]:
            axis.plot(x, centre, color=look["color"], marker="o", markersize=3.5, linestyle="none")
    axis.set_xlabel(unit[1].capitalize())
    axis.margins(x=0.01)
    axis.set_xlim(left=0)
    if metric == RETURN:
        for group in groups:
            mark_evaluations(axis, evaluations_of(group, options.x, unit[0], task), looks[group.label])
        if not task:
            goal_line(axis, groups)
    elif panel.metric in ("steps_per_second", "policy_lag", "learner_waits", "episode_length"):
        axis.set_ylim(bottom=0)
    if panel.metric == "steps_per_second":
        axis.yaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k" if value >= 1000 else f"{value:g}")


def evaluations_of(group: Group, x: str, scale: float = 1.0, task: str = "") -> list[Curve]:
    """Return the curves of evaluations, one for each seed that was evaluated; of one task, if it is named."""
    curves = [curve_of(run.evaluations, AXES[x], f"mean/{task}" if task else "mean") for run in group.runs]
    return [(places / scale, means) for places, means in curves if len(places)]


def mark_evaluations(axis: Axes, curves: list[Curve], look: dict[str, Any]) -> None:
    """Draw hollow marks for the evaluations of every seed, and a thin dashed line through their mean."""
    if not curves:
        return
    style = {**EVALUATED, "color": look["color"], "zorder": 3}
    most = max(2, EVALUATION_MARKS // len(curves))
    for x, y in curves:
        every = max(1, -(-len(x) // most))
        marks = {**style, "marker": look["marker"] or "o", "markevery": every}
        axis.plot(x, y, **(marks if len(curves) == 1 else {**marks, "linestyle": "none", "markersize": 3}))
    if len(curves) > 1 and max(x[0] for x, _ in curves) < min(x[-1] for x, _ in curves):
        x, mean, *_ = summarised(curves, "range")
        axis.plot(x, mean, **style)


def goal_line(axis: Axes, groups: list[Group]) -> None:
    """Draw the return at which training stops, if it is the same for all runs."""
    goals = {run.settings.get("run.stop_return") for group in groups for run in group.runs}
    goal: Any = goals.pop() if len(goals) == 1 else None
    if not is_number(goal):
        return
    axis.axhline(goal, color="#666666", linewidth=0.9, linestyle=(0, (1, 2)), zorder=1)
    place: dict[str, Any] = {"xy": (0.0, goal), "xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    axis.annotate(f"goal {goal:g}", xytext=(3, 2), color="#444444", fontsize=7.5, **place)


def heading(figure: Figure, groups: list[Group], options: Options, panels: list[Panel]) -> None:
    """The title, and a legend outside of every panel."""
    from matplotlib.lines import Line2D

    environments = list(dict.fromkeys(group.environment for group in groups))
    title = options.title
    if title is None:
        title = environments[0] if len(environments) == 1 else (panels[0].title if len(panels) == 1 else "")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11.5, fontweight="bold")
    looks = styles(groups)
    names = {group.label: f"{group.label}{seeds(groups, group.label, options)}" for group in groups}
    shown = groups if any(panel.metric == RETURN for panel in panels) else []
    evaluated = max((len(evaluations_of(group, options.x)) for group in shown), default=0)  # of seeds in a group
    if evaluated:
        names = {label: name.strip() or "training" for label, name in names.items()}
    handles = [Line2D([], [], **looks[label], label=name.strip(), markersize=4.5) for label, name in names.items()]
    if evaluated:
        colour = looks[groups[0].label]["color"] if len(looks) == 1 else "#444444"
        label = "evaluations of each seed, and their mean" if evaluated > 1 else "evaluations"
        handles.append(Line2D([], [], **{"marker": "o", "color": colour, **EVALUATED}, label=label))
    default = Options()
    if any(looks) and (options.centre, options.band) != (default.centre, default.band):
        handles.append(Line2D([], [], linestyle="none", label=f"lines and bands: {summary_text(options)}"))
    if len(handles) > 1 or names[groups[0].label].strip():
        longest = max(len(str(handle.get_label())) for handle in handles)
        columns = max(1, min(len(handles), math.floor(15 * figure.get_figwidth() / (longest + 8))))
        rows = math.ceil(len(handles) / columns)
        figure.set_figheight(figure.get_figheight() + LEGEND_ROW * max(0, rows - FEW_ROWS))
        figure.legend(handles=handles, loc="outside lower left", ncols=columns, frameon=False, handlelength=3.2)


def seeds(groups: list[Group], label: str, options: Options) -> str:
    """Return how many runs a line stands for, in words; empty if it is one."""
    counted = [group for group in groups if group.label == label]
    if all(len(group.runs) == 1 for group in counted):
        return ""
    count = count_text(counted)
    return f"  ({count})" if label else f"{summary_text(options)} of {count}"


def summary_text(options: Options) -> str:
    """What the lines and the bands of several seeds are."""
    return f"{CENTRE_NAMES[options.centre]} and {BAND_NAMES[options.band]}"
