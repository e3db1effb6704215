"""Scores against one setting, such as a lag or a learning rate: a line for each way to train, a panel for each task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pronk.metrics.statistics import CONFIDENCE, Interval, iqm
from pronk.plotting.compare import Compared, compare, runs_to_compare, with_interval
from pronk.plotting.comparison import MISSING, differing_keys, environment_of, label_of, shown
from pronk.plotting.figures import look_of, styled
from pronk.plotting.profiles import axis_title
from pronk.types import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_COLUMNS = 3  # of panels
HANDLE_INCHES, LETTER_INCHES = 0.7, 0.08  # of an entry of the legend
SPREAD = 0.3  # of the way to the next value, over which lines are set apart so that their intervals can be read


@dataclass(frozen=True)
class Against:
    """The interquartile mean of every group, sorted by the values of one setting."""

    key: str
    values: list[Any]
    cells: dict[str, dict[str, list[Interval | None]]]
    """Task -> label of a line -> one for each value; None where there are no runs."""
    compared: Compared


def against(
    runs: str | Path | Sequence[str | Path],
    key: str,
    *,
    by: Sequence[str] = (),
    metric: str = "final",
    normalise: str = "none",
) -> Against:
    """Compare runs as `compare` does, group by group for each value of the setting `key`.

    Lines are the groups of `by`; by default of every setting that differs, but not the seed. Raises `UserError` as
    `compare` does, and if all runs have the same value.
    """
    lines = [one for one in by or differing(runs, metric) if one != key]
    compared = compare(runs, by=[*lines, key], metric=metric, normalise=normalise)
    found = [(group, group.runs[0].settings.get(key, MISSING)) for group in compared.groups]
    values = sorted({shown(value): value for _, value in found}.values(), key=order)
    columns = {shown(value): number for number, value in enumerate(values)}
    if len(values) < 2:
        raise UserError(f"{key} is {shown(values[0])} in all of these runs; it must differ between them")
    cells: dict[str, dict[str, list[Interval | None]]] = {task: {} for task in compared.tasks}
    for group, value in found:
        label = label_of(group.runs[0], lines, lines) or "all runs"
        for number, task in enumerate(compared.tasks):
            row = cells[task].setdefault(label, [None] * len(values))
            row[columns[shown(value)]] = with_interval(iqm, group.scores[:, number : number + 1])
    return Against(key, values, cells, compared)


def differing(runs: str | Path | Sequence[str | Path], metric: str) -> list[str]:
    """Return the settings in which runs of the same environment differ, without the seed."""
    scored, _ = runs_to_compare(runs, metric)
    return differing_keys([[run] for run in scored], [environment_of(run) for run in scored])


def order(value: Any) -> tuple[bool, float, str]:
    """Return a sort key: numbers by their size, then everything else by its text."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return not is_number, float(value) if is_number else 0.0, str(value)


def draw_against(result: Against) -> Figure:
    """Draw a panel for each task: the values of the setting side by side, a line for each group."""
    from matplotlib.figure import Figure

    columns = min(len(result.cells), MOST_COLUMNS)
    rows = -(-len(result.cells) // columns)
    with styled():
        figure = Figure(figsize=(1.4 + 3.4 * columns, 0.9 + 3.1 * rows), layout="constrained")
        axes = [figure.add_subplot(rows, columns, 1 + number) for number in range(len(result.cells))]
        for axis, (task, lines) in zip(axes, result.cells.items(), strict=True):
            draw_lines(axis, result, lines)
            axis.set_title(task)
        axes[0].set_ylabel(f"{axis_title(result.compared)}\n(interquartile mean, {CONFIDENCE:.0%} interval)")
        handles, labels = axes[0].get_legend_handles_labels()
        fit = int(figure.get_figwidth() / (HANDLE_INCHES + LETTER_INCHES * max(map(len, labels))))
        figure.legend(handles, labels, loc="outside lower center", ncols=max(1, fit), frameon=False)
    return figure


def draw_lines(axis: Axes, result: Against, lines: dict[str, list[Interval | None]]) -> None:
    for number, (label, row) in enumerate(lines.items()):
        shift = SPREAD * (number / max(1, len(lines) - 1) - 0.5)
        points = [(place + shift, *map(float, cell)) for place, cell in enumerate(row) if cell is not None]
        x, value, low, high = ([point[part] for point in points] for part in range(4))
        look = look_of(number)
        axis.vlines(x, low, high, color=look["color"], linewidth=1.1, alpha=0.7)
        axis.plot(x, value, **look, label=label, markersize=4.5, linewidth=1.2)
    axis.set_xticks(range(len(result.values)), [shown(value) for value in result.values])
    axis.set_xlabel(result.key)
