"""`pronk runs`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from pronk.cli.shell import AsJson, Screen, app, out

WIDEST = 10_000  # characters of a line
COLOURS = {
    "running": "bold cyan",
    "solved": "bold green",
    "finished": "green",
    "stopped": "green",
    "interrupted": "yellow",
}  # else red


@app.command()
def runs(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="A folder of runs, or one run.")] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List runs, the newest first: environment, state, steps, returns, speed, age and tags.

    A run is *running* while a process trains it. *killed* means that its process ended without writing a summary (a
    power cut, `kill -9`); `pronk train RUN --resume` continues it. Of a *failed* run, the cause is printed below the
    table. Returns are means of recent episodes; the age counts from the last start.
    """
    from pronk.runs.reading import RUNS, cause_line, printable, runs_below

    found = [] if folder == RUNS and not folder.exists() else runs_below(folder)
    rows = [run.overview() for run in found]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    if not rows:
        out.print(f"no runs in {escape(str(folder))}/ yet; `pronk train cartpole` makes one", highlight=False)
        return
    columns = [Column(name, no_wrap=True) for name in ("run", "environment", "state")]
    table = Table(*columns, box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("steps", "best", "last", "steps/s", "age"):
        table.add_column(name, justify="right", no_wrap=True)
    tagged = any(row["tags"] for row in rows)
    if tagged:
        table.add_column("tags", no_wrap=True)
    for row in rows:
        tags = [escape(printable(", ".join(row["tags"])))] if tagged else []
        table.add_row(*cells(row, folder), *tags)
    # At its full width: a name that is cut or split over two lines can neither be copied nor searched for.
    width = Measurement.get(out, out.options.update(width=WIDEST), table).maximum
    Screen(width=width).print(table, soft_wrap=True)
    for row in rows:
        if row["failure"]:
            cause = printable(cause_line(row["failure"]))
            out.print(Text(f"{name_of(row, folder)} failed: {cause}", "red"), soft_wrap=True)


def name_of(row: dict[str, Any], folder: Path) -> str:
    """Return a run's path below the folder, or its name if the folder is the run itself."""
    from pronk.runs.reading import printable

    path = Path(row["run"])
    return printable(row["name"] if path == folder else str(path.relative_to(folder)))


def cells(row: dict[str, Any], folder: Path) -> list[str]:
    """Format a row."""
    from pronk.runs.reading import printable, return_text

    returns = [return_text(row[key]) for key in ("best_return", "last_return")]
    rate = f"{row['steps_per_second']:,.0f}" if row["steps_per_second"] else "-"
    state = f"[{COLOURS.get(row['state'], 'bold red')}]{row['state']}[/]"
    since = age(time.time() - row["started"])
    environment = printable(str(row["environment"] or "-"))
    return [escape(name_of(row, folder)), escape(environment), state, f"{row['env_steps']:,}", *returns, rate, since]


def age(seconds: float) -> str:
    """Format a duration in its largest unit: 12 s, 5 min, 3 h, 2 d."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
