"""`pronk runs`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from pronk.cli.shell import app, out

COLOURS = {"running": "bold cyan", "solved": "bold green", "finished": "green", "interrupted": "yellow"}  # else red


@app.command()
def runs(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where the runs are.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> None:
    """List runs, the newest first: state, steps, returns, speed and age.

    A run is *running* while a process trains it; *killed* means that it ended without a word (a power cut, kill -9) and
    can go on with `pronk train RUN --resume`. Returns are means of 100 episodes; the age counts from the last start.
    """
    from pronk.runs.reading import RUNS, runs_below

    found = [] if folder == RUNS and not folder.exists() else runs_below(folder)
    rows = [run.overview() for run in found]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    if not rows:
        out.print(f"no runs in {escape(str(folder))}/ yet; `pronk train cartpole` makes one", highlight=False)
        return
    table = Table(Column("run", overflow="fold"), "state", box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("steps", "best", "last", "steps/s", "age"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*cells(row, folder))
    out.print(table)


def cells(row: dict[str, Any], folder: Path) -> list[str]:
    """A row as text."""
    from pronk.runs.reading import return_text

    name = Path(row["run"]).relative_to(folder)
    returns = [return_text(row[key]) for key in ("best_return", "last_return")]
    rate = f"{row['steps_per_second']:,.0f}" if row["steps_per_second"] else "-"
    state = f"[{COLOURS.get(row['state'], 'bold red')}]{row['state']}[/]"
    return [escape(str(name)), state, f"{row['env_steps']:,}", *returns, rate, age(time.time() - row["started"])]


def age(seconds: float) -> str:
    """In the largest unit that fits: 12 s, 5 min, 3 h, 2 d."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
