"""`pronk plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pronk.cli.shell import Runs, app, out, warn

Picture = Annotated[
    Path | None,
    typer.Option("--out", help="A file that ends in .png, .svg, .pdf or .html [default: plot.png in the run]."),
]
Axis = Annotated[str, typer.Option("--x", help="The horizontal axis: steps, frames or time.")]
Only = Annotated[
    list[str] | None,
    typer.Option(
        help="Only this panel: return, throughput, lag, entropy, length, waits or any name in metrics.jsonl. "
        "May be given several times."
    ),
]
Smooth = Annotated[
    float | None,
    typer.Option(
        help="Average every point over this share of the axis [default: 0 for returns, which are means of "
        "many episodes already, 0.05 for the rest]."
    ),
]
Centre = Annotated[str, typer.Option(help="The line of several seeds: mean, or iqm, their interquartile mean.")]
Band = Annotated[
    str,
    typer.Option(help="Band around the line of several seeds: range, std, or bootstrap, the 95% interval of the line."),
]
Title = Annotated[str | None, typer.Option(help="Title [default: the environment's name].")]
Labels = Annotated[list[str] | None, typer.Option(help="Name of a group in the legend; once per group, in order.")]


@app.command()
def plot(
    runs: Runs,
    target: Picture = None,
    x: Axis = "steps",
    only: Only = None,
    smooth: Smooth = None,
    centre: Centre = "mean",
    band: Band = "range",
    title: Title = None,
    label: Labels = None,
) -> None:
    """Draw learning curves: return, throughput, policy lag and entropy. Of a population, its lineage and settings.

    Runs that differ only by seed become one line, their mean, with a band from the lowest to the highest; groups are
    named after the settings in which they differ. The line goes on while at least two runs are left. Evaluations
    (`pronk train --evaluate`) are hollow marks on a thin dashed line in the panel of returns. `pronk plot last`, or
    `pronk plot runs/a runs/b --out curves.svg --only return --x time`.
    """
    from pronk.plotting import plot as draw
    from pronk.plotting.comparison import count_text

    done = draw(
        list(runs),
        target,
        x=x,
        only=only or (),
        smooth=smooth,
        centre=centre,
        band=band,
        title=title,
        labels=label or (),
    )
    for note in done.notes:
        warn(note)
    for group in done.groups:
        name = ", ".join(filter(None, [group.environment, group.label]))
        out.print(f"  {name}: {count_text([group])}", highlight=False, soft_wrap=True, markup=False)
    out.print(f"Drawn in {done.path}", highlight=False, soft_wrap=True, markup=False)
