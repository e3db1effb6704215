"""The picture of a population: the return of every member with the copies as arrows, and how its settings changed.

It reads population.json as plain data. The thick line is the ancestry of the best member: where its weights come from,
and with which settings they were trained.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pronk.plotting.curves import curve_of
from pronk.plotting.figures import AXES, COUNTS, PANELS, RETURN, look_of, styled
from pronk.runs.reading import Run, is_number, read_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FILE = "population.json"
COLUMNS = 2  # panels of settings side by side
ANCESTRY: dict[str, Any] = {"linewidth": 6.0, "alpha": 0.25, "solid_capstyle": "butt", "zorder": 1}
CURVED = "arc3,rad=0.25"  # copies of one round are at the same step: arcs keep them apart


class Segment(NamedTuple):
    """A round of the best member's ancestry."""

    member: str
    start: float  # in steps
    end: float


def is_population(folder: Path) -> bool:
    """Whether a directory is that of a population."""
    return (folder / FILE).is_file()


def draw_population(folder: Path, title: str | None = None) -> Figure:
    """Draw the figure. A population that is still training is drawn as far as it is."""
    from matplotlib.figure import Figure

    content = read_json(folder / FILE)
    rounds = content["rounds"]
    names = [one["name"] for one in rounds[0]["members"]]
    keys = list(rounds[0]["members"][0]["settings"])
    with styled():
        figure = Figure(layout="constrained")
        axes = panels(figure, len(keys))
        scale, word = unit_of(rounds[-1]["until"])
        looks = {name: look_of(number, marked=False) for number, name in enumerate(names)}
        ancestry = ancestry_of(content)
        draw_returns(axes[0], folder, content, looks, scale)
        thicken_curve(axes[0], folder, content, ancestry, looks, scale)
        for axis, key in zip(axes[1:], keys, strict=True):
            draw_setting(axis, key, rounds, looks, ancestry, scale)
        for axis in axes:
            axis.set_xlabel(word.capitalize())
            axis.set_xlim(left=0)
        heading(figure, title or str(content.get("name")), looks, ancestry)
    return figure


def panels(figure: Figure, settings: int) -> list[Axes]:
    """Return a wide panel, and below it one for each setting."""
    columns = min(COLUMNS, settings)
    rows = -(-settings // columns)
    figure.set_size_inches(7.6, 3.6 + 1.9 * rows)
    grid = figure.add_gridspec(1 + rows, columns, height_ratios=(1.9, *[1.0] * rows))
    wide = figure.add_subplot(grid[0, :])
    return [wide, *(figure.add_subplot(grid[1 + i // columns, i % columns]) for i in range(settings))]


def unit_of(steps: float) -> tuple[float, str]:
    scale, word = next((unit for unit in COUNTS if steps >= unit[0]), COUNTS[-1])
    return scale, f"{word}steps"


def ancestry_of(content: dict[str, Any]) -> list[Segment]:
    """Return whose weights the best member has, round by round from the first; empty while there is no best one."""
    rounds, best = content["rounds"], content.get("best")
    if not best:
        return []
    name, found = best["member"], []
    over = [one for one in rounds if any(turn["value"] is not None for turn in one["members"])]
    for number in reversed(range(len(over))):
        start = over[number - 1]["until"] if number else 0
        found.append(Segment(name, start, over[number]["until"]))
        turn = next(turn for turn in over[number]["members"] if turn["name"] == name)
        name = turn["parent"] or name
    return found[::-1]


def draw_returns(axis: Axes, folder: Path, content: dict[str, Any], looks: dict[str, Any], scale: float) -> None:
    """Draw the return of every member, with an arrow from each member that was copied to its copy."""
    for name, look in looks.items():
        x, y = curve_of(Run(folder / name).metrics, AXES["steps"], shown_metric(content))
        axis.plot(x / scale, y, **{**look, "linewidth": 1.3})
    rounds = content["rounds"]
    for before, after in itertools.pairwise(rounds):
        values = {turn["name"]: turn["value"] for turn in before["members"]}
        for turn in after["members"]:
            ends = values.get(turn["parent"]), values.get(turn["name"])
            if turn["parent"] and all(map(is_number, ends)):
                arrow(axis, before["until"] / scale, ends, looks[turn["name"]]["color"])
    metric = shown_metric(content)
    what = PANELS["return"].title if metric == RETURN else metric.replace("_", " ").capitalize()
    axis.set_title(f"{what}; an arrow leads from a member that was copied to its copy")


def shown_metric(content: dict[str, Any]) -> str:
    """Return the column of metrics.jsonl that members are compared by. Evaluations are in the same unit as returns."""
    return RETURN if content["metric"] == "evaluation" else str(content["metric"])


def arrow(axis: Axes, x: float, ends: tuple[Any, Any], colour: str) -> None:
    style = {
        "arrowstyle": "-|>",
        "color": colour,
        "linewidth": 1.0,
        "connectionstyle": CURVED,
        "shrinkA": 0,
        "shrinkB": 0,
    }
    axis.annotate("", xy=(x, ends[1]), xytext=(x, ends[0]), arrowprops=style, zorder=4)


def thicken_curve(
    axis: Axes, folder: Path, content: dict[str, Any], ancestry: list[Segment], looks: dict[str, Any], scale: float
) -> None:
    for member, start, end in ancestry:
        x, y = curve_of(Run(folder / member).metrics, AXES["steps"], shown_metric(content))
        inside = (x >= start) & (x <= end * 1.02)
        axis.plot(x[inside] / scale, y[inside], color=looks[member]["color"], **ANCESTRY)


def draw_setting(
    axis: Axes, key: str, rounds: list[Any], looks: dict[str, Any], ancestry: list[Segment], scale: float
) -> None:
    """Draw the schedule of a setting: a step line for each member. Words and lists are numbered."""
    schedule = {
        name: [turn["settings"][key] for one in rounds for turn in one["members"] if turn["name"] == name]
        for name in looks
    }
    values = [value for line in schedule.values() for value in line]
    labels = None if all(map(is_number, values)) else sorted({str(value) for value in values})
    edges = [0.0, *(one["until"] / scale for one in rounds)]
    heights = {
        name: [labels.index(str(value)) if labels else value for value in line] for name, line in schedule.items()
    }
    for name, line in heights.items():
        axis.stairs(
            line, edges, baseline=None, color=looks[name]["color"], linestyle=looks[name]["linestyle"], linewidth=1.3
        )
    for number, (member, start, end) in enumerate(ancestry):
        axis.hlines(heights[member][number], start / scale, end / scale, color=looks[member]["color"], **ANCESTRY_FLAT)
    axis.set_title(key)
    if labels:
        axis.set_yticks(range(len(labels)), labels)
    elif min(values) > 0 and max(values) / min(values) > 3:
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")


ANCESTRY_FLAT = {key: value for key, value in ANCESTRY.items() if key != "solid_capstyle"}


def heading(figure: Figure, title: str, looks: dict[str, Any], ancestry: list[Segment]) -> None:
    from matplotlib.lines import Line2D

    figure.suptitle(title, x=0.01, ha="left", fontsize=11.5, fontweight="bold")
    handles = [Line2D([], [], **look, label=name) for name, look in looks.items()]
    if ancestry:
        thick = {key: value for key, value in ANCESTRY.items() if key != "zorder"}
        handles.append(Line2D([], [], color="#444444", **thick, label=f"ancestors of {ancestry[-1].member}"))
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(len(handles), math.floor(15 * figure.get_figwidth() / (longest + 8))))
    figure.legend(handles=handles, loc="outside lower left", ncols=columns, frameon=False, handlelength=3.2)
