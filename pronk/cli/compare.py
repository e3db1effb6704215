"""`pronk compare`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

from pronk.cli.shell import AsJson, Runs, Screen, app, out, warn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pronk.plotting.against import Against
    from pronk.plotting.compare import Compared, GroupScores

    Answer = tuple[Compared, Callable[[int], list[Table]], Callable[[], Figure]]
    """The numbers; the tables, with so many spaces between columns; the picture."""

PIPED_WIDTH = 1000  # no line is wrapped, so that other programs can read the table


By = Annotated[
    list[str] | None,
    typer.Option(
        help="Group runs by this setting, such as loss.name, whatever else differs. May be given several times "
        "[default: every setting that differs, but not the seed]."
    ),
]
Along = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="Compare along this setting, such as learner.extra_lag: a table for each task with a column for each "
        "value, and in the picture a line for each group.",
    ),
]
Metric = Annotated[
    str,
    typer.Option(
        help="Score of a run: final (its last mean return), late (the mean over the last tenth of its steps), best "
        "(its highest), eval (its last evaluation) or area (mean return from the start to the end of the shortest "
        "run)."
    ),
]
Normalise = Annotated[
    str,
    typer.Option(
        help="How scores of different tasks are made alike. none: not at all; human: random play is 0 and a human "
        "1 (Atari); range: a task's worst run is 0 and its best 1."
    ),
]
Picture = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="Also draw intervals and performance profiles, or with --against lines: a .png, .svg or .pdf file.",
    ),
]


@app.command()
def compare(
    runs: Runs,
    by: By = None,
    against: Along = None,
    metric: Metric = "final",
    normalise: Normalise = "none",
    as_json: AsJson = False,
    target: Picture = None,
) -> None:
    """Compare settings over seeds and tasks: which is better, and how certain is that?

    Runs that differ only by seed are a group, named after the settings in which the groups differ; environments and
    games are tasks. For each group: the interquartile mean (IQM) of all its runs with its 95% stratified bootstrap
    interval, the mean, the median of the tasks, the optimality gap of normalised scores (how far they fall short of 1),
    and the probability that a run of it beats a run of the first group on the same task. Runs that failed or are not
    complete are left out and named. `pronk compare runs/sweep --by loss.name --out comparison.png`.
    """
    from pronk.plotting.plot import check_path, write_picture

    if target:
        check_path(target, ("png", "svg", "pdf"))
    chosen = {"by": by or (), "metric": metric, "normalise": normalise}
    result, tables, drawn = compared_along(runs, against, chosen) if against else compared(runs, chosen)
    if target:
        write_picture(drawn(), target)
    if as_json:
        print(json.dumps(result.as_json(), indent=2))
        return
    console = out if out.is_terminal else Screen(width=PIPED_WIDTH)
    for table in tables(2 if console.width >= 100 else 1):
        console.print(table)
    for path, reason in result.left_out.items():
        warn(f"{path} is left out: {reason}")
    for note in result.notes:
        warn(note)
    if target:
        out.print(f"Drawn in {target}", highlight=False, soft_wrap=True, markup=False)


def compared(runs: list[str], chosen: dict[str, Any]) -> Answer:
    """Compare groups: one table, and intervals beside profiles."""
    from pronk.plotting.compare import compare as compare_runs
    from pronk.plotting.profiles import draw_comparison

    result = compare_runs(list(runs), **chosen)
    return result, lambda gap: [table_of(result, gap)], lambda: draw_comparison(result)


def compared_along(runs: list[str], key: str, chosen: dict[str, Any]) -> Answer:
    """Compare groups for each value of a setting: a table and a panel for each task."""
    from pronk.plotting.against import against, draw_against

    found = against(list(runs), key, **chosen)
    return found.compared, lambda gap: tables_along(found, gap), lambda: draw_against(found)


def tables_along(found: Against, gap: int) -> list[Table]:
    """A table for each task: a row for each group, a column for each value of the setting."""
    from pronk.plotting.comparison import shown
    from pronk.plotting.numbers import interval_text

    tables = []
    for task, rows in found.cells.items():
        table = Table(Column(escape(task), overflow="fold"), box=None, header_style="dim", padding=(0, gap, 0, 0))
        for number, value in enumerate(found.values):
            name = shown(value) if number else f"{found.key.rpartition('.')[2]}={shown(value)}"
            table.add_column(escape(name), justify="right")
        for label, row in rows.items():
            table.add_row(*map(Text, (label, *(interval_text(cell) if cell else "-" for cell in row))))
        tables.append(table)
    return tables


def table_of(result: Compared, gap: int = 2) -> Table:
    """A row for each group, with `gap` spaces between columns."""
    width = min(16, max(len(group.label) for group in result.groups))
    table = Table(
        Column("group", overflow="fold", min_width=width), box=None, header_style="dim", padding=(0, gap, 0, 0)
    )
    names = ["runs", "tasks", "IQM [95%]", "mean", "median"]
    names += ["gap"] if result.normalise != "none" else []
    names += ["P(> first) [95%]"] if len(result.groups) > 1 else []
    for name in names:
        table.add_column(name, justify="right")
    for group in result.groups:
        table.add_row(*map(Text, (group.label, *cells(group, result))))
    return table


def cells(group: GroupScores, result: Compared) -> list[str]:
    """Format a row, without the name."""
    from pronk.plotting.numbers import interval_text, score_text, share_text

    row = [str(len(group.runs)), str(len(result.tasks)), interval_text(group.iqm)]
    row += [score_text(group.mean), score_text(group.median)]
    if group.optimality_gap is not None:
        row.append(score_text(group.optimality_gap))
    if len(result.groups) > 1:
        row.append(share_text(group.better) if group.better else "-")
    return row
