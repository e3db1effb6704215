"""`pronk compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from pronk.cli.shell import AsJson, app, out, warn

if TYPE_CHECKING:
    from pronk.plotting.compare import Compared, GroupScores

PIPED_WIDTH = 1000  # no line is wrapped, so that other programs can read the table


@app.command()
def compare(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Run directories, names under runs/, `last`, or a directory of runs."),
    ],
    by: Annotated[
        list[str] | None,
        typer.Option(
            help="Group runs by this setting, such as loss.name, whatever else differs. May be given several times "
            "[default: every setting that differs, but not the seed]."
        ),
    ] = None,
    metric: Annotated[
        str,
        typer.Option(
            help="Score of a run: final (its last mean return), best (its highest), eval (its last evaluation) or area "
            "(mean return from the start to the end of the shortest run)."
        ),
    ] = "final",
    normalise: Annotated[
        str,
        typer.Option(
            help="How scores of different tasks are made alike. none: not at all; human: random play is 0 and a human "
            "1 (Atari); range: a task's worst run is 0 and its best 1."
        ),
    ] = "none",
    as_json: AsJson = False,
    target: Annotated[
        Path | None,
        typer.Option("--out", help="Also draw intervals and performance profiles: a .png, .svg or .pdf file."),
    ] = None,
) -> None:
    """Compare settings over seeds and tasks: which is better, and how certain is that?

    Runs that differ only by seed are a group, named after the settings in which the groups differ; environments and
    games are tasks. For each group: the interquartile mean (IQM) of all its runs with its 95% stratified bootstrap
    interval, the mean, the median of the tasks, the optimality gap of normalised scores (how far they fall short of 1),
    and the probability that a run of it beats a run of the first group on the same task. Runs that failed or are not
    complete are left out and named. `pronk compare runs/sweep --by loss.name --out comparison.png`.
    """
    from pronk.plotting.compare import compare as compare_runs
    from pronk.plotting.plot import check_path, write_picture

    if target:
        check_path(target, ("png", "svg", "pdf"))
    result = compare_runs(list(runs), by=by or (), metric=metric, normalise=normalise)
    if target:
        from pronk.plotting.profiles import draw_comparison

        write_picture(draw_comparison(result), target)
    if as_json:
        print(json.dumps(result.as_json(), indent=2))
        return
    console = out if out.is_terminal else Console(file=out.file, width=PIPED_WIDTH)
    console.print(table_of(result, gap=2 if console.width >= 100 else 1))
    for path, reason in result.left_out.items():
        warn(f"{path} is left out: {reason}")
    for note in result.notes:
        warn(note)
    if target:
        out.print(f"Drawn in {target}", highlight=False, soft_wrap=True, markup=False)


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
