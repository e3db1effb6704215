"""`pronk bench --tune`: what it shows and writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from pronk.cli.shell import err, out, warn
from pronk.config import Config
from pronk.config.trees import flat
from pronk.processes.interrupts import INTERRUPTED
from pronk.types import UserError

if TYPE_CHECKING:
    from pronk.bench.grid import Setting
    from pronk.bench.halving import Halving, Turn
    from pronk.bench.tuning import Tuning


def file_to_write(source: str, given: Path | None) -> Path:
    """Return where the settings go. Raises UserError if they cannot: before minutes are spent on measuring."""
    from pronk.runs.directory import plain_name

    path = given or Path(f"{plain_name(Path(source).name)}-tuned.yaml")
    if path.suffix not in (".yaml", ".yml"):
        raise UserError(f"--out: the name must end in .yaml, got {path}")
    if path.exists():
        raise UserError(f"--out: {path} exists already; choose another name")
    if not path.parent.is_dir():
        raise UserError(f"--out: no such directory: {path.parent}")
    return path


def show_tuning(
    config: Config,
    source: str,
    overrides: list[str],
    seconds: float | None,
    path: Path,
    as_json: bool,
    load: dict[str, Any],
) -> None:
    """Measure, show the table and write the file; exit with 130 if Ctrl-C came first."""
    from pronk import __version__
    from pronk.bench.tuned_file import tree_of, tuned_yaml, verdict
    from pronk.bench.tuning import SECONDS, tune

    with TurnsOnScreen(err) as screen:
        tuning = tune(config, warn, screen.turn, seconds or SECONDS, fixed=flat(tree_of(overrides)))
    unwritten: UserError | None = None  # raised when the figures, which took minutes, have been shown
    if not tuning.interrupted:
        try:
            path.write_text(tuned_yaml(tuning, source, overrides, __version__), encoding="utf-8")
        except OSError as error:
            unwritten = UserError(f"--out: cannot write {path}: {error.strerror}")
    if as_json:
        is_written = not tuning.interrupted and unwritten is None
        print(json.dumps({**as_data(tuning), "file": str(path) if is_written else None, **load}))
    elif tuning.default.spans:
        out.print(table_of(tuning, source))
        out.print(verdict(tuning), highlight=False, soft_wrap=True)
    for one in tuning.failed():
        warn(f"{one.setting} cannot be trained: {one.failure}")
    if tuning.interrupted:
        warn("interrupted: these are the figures so far; no file was written")
        raise typer.Exit(INTERRUPTED)
    if unwritten is not None:
        raise unwritten
    if not as_json:
        out.print(Text(f"{path} is ready: pronk train {path}"), soft_wrap=True)


class TurnsOnScreen:
    """A bar that shows which setting is being measured; plain lines, one per round, where there is no terminal."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._console, self._task = console, self._progress.add_task("starting", total=None)
        self._round = 0

    def __enter__(self) -> TurnsOnScreen:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def turn(self, turn: Turn[Setting], halving: Halving[Setting]) -> None:
        """Show the next turn."""
        what = f"round {turn.round} of {halving.rounds}"
        if turn.round > self._round and not self._console.is_terminal:
            self._console.print(f"{what}: {len(halving.left)} settings", highlight=False)
        self._round = turn.round
        values = {"description": f"{what}: {turn.setting}", "completed": turn.number - 1}
        self._progress.update(self._task, total=halving.turns_at_most, **values)  # type: ignore[arg-type]


def table_of(tuning: Tuning, source: str) -> Table:
    """Draw what was measured, the fastest of each number of rounds first."""
    names = ("count", "envs", "slots", "threads", "steps/s", "spread", "lag", "ratio", "rounds")
    columns = [Column(name, justify="right", no_wrap=True) for name in names]
    title = f"{escape(source)} on {tuning.cores} cores; lag in updates, ratio to the default in the same rounds"
    table = Table(*columns, "", title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for one in tuning.in_order():
        ratio, (low, high) = tuning.ratio(one), one.spread
        marks = {"default": one is tuning.default, "best": one is tuning.best, "chosen": one is tuning.chosen}
        table.add_row(
            *map(str, one.setting),
            f"{one.rate:,.0f}",
            f"{short(low)}-{short(high)}",
            f"{one.lag:.1f}",
            "" if ratio is None else f"{ratio:.2f}",
            str(len(one.spans)),
            ", ".join(name for name, holds in marks.items() if holds),
        )
    return table


def short(number: float) -> str:
    """Return 8,512 or 85K."""
    return f"{number:,.0f}" if number < 10_000 else f"{number / 1000:,.0f}K"


def as_data(tuning: Tuning) -> dict[str, Any]:
    """Return everything for --json."""
    from pronk.bench.tuning import GOOD

    settings = [
        {
            **one.setting.changes,
            "steps_per_second": one.rate,
            "spread": list(one.spread),
            "policy_lag": one.lag,
            "ratio": tuning.ratio(one),
            "rounds": len(one.spans),
        }
        for one in tuning.in_order()
    ]
    measured = bool(tuning.default.spans)
    return {
        "cores": tuning.cores,
        "settings": settings,
        "failed": {str(one.setting): one.failure for one in tuning.failed()},
        "default": tuning.default.setting.changes,
        "best": tuning.best.setting.changes if measured else None,
        "chosen": tuning.chosen.setting.changes if measured else None,
        "changes": tuning.changes,
        "default_of_best": tuning.default_of_best if measured else None,
        "default_is_good": tuning.default_of_best >= GOOD if measured else None,
        "interrupted": tuning.interrupted,
    }
