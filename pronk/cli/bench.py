"""`pronk bench`."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from pronk.cli.shell import Overrides, Source, Trust, app, out, warn
from pronk.config import load_config, preset_names
from pronk.config.machine import busy_cores
from pronk.runs.reading import find_run_path, is_locked, is_run
from pronk.types import UserError

QUIET = 0.1  # of the cores busy: more means other work, which makes the figures too low
LOOK_SECONDS = 1.0
SECONDS, ROUNDS = 15.0, 5


@app.command()
def bench(
    source: Source,
    overrides: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Seconds of training to measure [default: 15]; each part alone takes a fifth of it. With --tune, of "
            "each setting in each round [default: 2].",
        ),
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds to share them out over [default: 5].")] = None,
    tune: Annotated[
        bool,
        typer.Option(
            "--tune", help="Find the fastest actors.count, envs and slots and learner.threads, and write them."
        ),
    ] = False,
    to: Annotated[
        Path | None, typer.Option("--out", help="With --tune: YAML file to write [default: PRESET-tuned.yaml].")
    ] = None,
    trust: Trust = False,
) -> None:
    """Measure how fast a preset trains here, against this machine's limit.

    In each round the training runs for a while, then pauses while environment, inference and learner are measured
    alone, each on all cores at once. limit = cores / (1/env + 1/inference + passes/learner), where the rates are per
    core, and passes is how often a step is learnt from. Figures are medians over the rounds, with their spread.

    Given a run directory instead of a preset, it measures the run's configuration and keeps the figures there, where
    `pronk dashboard` shows the run's speed against them. Where the machine has other work, which
    makes the figures too low, there is a warning.

    With `--tune` it trains with each setting of a small grid by turns, drops the slower half after every round, and
    writes the best to a file: `pronk bench cartpole --tune`, then `pronk train cartpole-tuned.yaml`. It takes some
    minutes. Batch, unroll length and passes stay as they are, and so does what is set on the command line. Ctrl-C shows
    what was measured so far.
    """
    check_options(seconds, rounds, tune, to)
    run = run_to_measure(source, overrides)
    config = load_config(run / "config.yaml" if run else source, overrides)
    if run:
        from pronk.runs.trust import code_to_train, require_known

        require_known(code_to_train(config), str(run), trust)
    if tune:
        from pronk.cli.bench_tune import file_to_write, show_tuning

        base = str(run / "config.yaml") if run else source
        path = file_to_write(run.name if run else source, to)
        return show_tuning(config, base, overrides or [], seconds, path, as_json, other_load())
    load = other_load()
    from pronk.bench import measure

    figures = {**measure(config, seconds or SECONDS, warn, rounds or ROUNDS), **load}
    if as_json:
        print(json.dumps(figures))
    else:
        show(figures, source)
    if run:
        keep(figures, run)


def check_options(seconds: float | None, rounds: int | None, tune: bool, to: Path | None) -> None:
    """Raise UserError for values that cannot be, or that do not go together."""
    least = 0.1 if tune else 1
    if seconds is not None and not least <= seconds < math.inf:
        raise UserError(f"--seconds must be finite and at least {least}, got {seconds:g}")
    if tune and rounds is not None:
        raise UserError("--rounds: --tune has as many rounds as it needs; use --seconds for longer ones")
    if to is not None and not tune:
        raise UserError("--out is for --tune: add it, or leave --out out")


def show(figures: dict[str, Any], source: str) -> None:
    """Print the figures as a table, and what to do about them."""
    out.print(table_of(figures, source))
    low, high = figures["spread"]["efficiency"]
    out.print(f"efficiency {figures['efficiency']:.0%} (trained / limit), {low:.0%} to {high:.0%} in the rounds")
    out.print(figures["advice"], highlight=False, soft_wrap=True)


def keep(figures: dict[str, Any], run: Path) -> None:
    """Write the figures to the run's directory. Raises UserError if it cannot be written, such as somebody else's."""
    path = run / "bench.json"
    try:
        path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None


def table_of(figures: dict[str, Any], source: str) -> Table:
    """Draw the rates and their spreads."""
    title = f"{escape(source)} on {figures['cores']} cores, {figures['rounds']} rounds"
    table = Table("part", Column("steps/s", justify="right"), Column("spread", justify="right"), title=title)
    table.title_justify = "left"
    for name, meaning in [
        ("env", "environments alone, per core"),
        ("inference", "policy alone, per core"),
        ("learner", f"learner alone, per core, learning each step {figures['passes']:.1f} times"),
        ("limit", "all of the above on every core"),
        ("trained", "whole system"),
    ]:
        times = figures["passes"] if name == "learner" else 1.0
        low, high = figures["spread"][name]
        spread = f"{low / times:,.0f} to {high / times:,.0f}"
        table.add_row(f"{name}: {meaning}", f"{figures[name] / times:,.0f}", spread)
    return table


def other_load() -> dict[str, Any]:
    """Return how many cores have other work before the measurement, and whether the figures will be too low for that.

    Also warns in that case.
    """
    load, cores = busy_cores(LOOK_SECONDS), os.cpu_count() or 1
    busy = load > QUIET * cores
    if busy:
        what = f"{load:.1f} of {cores} core{'s' if cores > 1 else ''} busy"
        warn(f"this machine is not quiet ({what}): the figures will be too low")
    return {"load": round(load, 2), "busy": busy}


def run_to_measure(source: str, overrides: list[str] | None) -> Path | None:
    """Return the run that `source` names, or None."""
    if source in preset_names() or not (source == "last" or is_run(Path(source))):
        return None
    run = find_run_path(source)
    if overrides:
        raise UserError(f"{overrides[0]!r}: a run is measured as it is; leave it out, or give {run / 'config.yaml'}")
    if is_locked(run):
        raise UserError(f"{run} is being trained right now, which would slow the measurement; wait for its end")
    return run
