"""`pronk sweep`."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from pronk.cli.shell import FAILED, Quiet, Trust, app, err, out, warn
from pronk.processes.interrupts import INTERRUPTED
from pronk.types import UserError

if TYPE_CHECKING:
    from pronk.sweeps.expand import Sweep
    from pronk.sweeps.sweeping import Outcome


@app.command()
def sweep(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE.yaml", help="A sweep file; with --resume or --retry also a sweep's directory."),
    ],
    run_dir: Annotated[
        Path | None, typer.Option(help="Directory to write the sweep to [default: runs/NAME-DATE-TIME].")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the members, and run nothing.")] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue a sweep (of --run-dir, or the newest of FILE under runs/): finished members are not run "
            "again, interrupted ones continue from their checkpoints.",
        ),
    ] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Continue a sweep, and run its failed members again.")] = False,
    quiet: Quiet = False,
    trust: Trust = False,
) -> None:
    """Run many trainings from one file: a grid, a list or a search, over seeds.

    The file has `base:` (a preset, a Gymnasium id or a file), settings of all members in the usual sections, and
    `sweep:` with `grid: {optimiser.learning_rate: [1e-3, 3e-3]}`, `list: [{loss.name: appo}, ...]` or `search:
    {optimiser.learning_rate: {low: 1e-4, high: 1e-2, log: true}}` with `trials: 20`, then `seeds: 3`.

    Members are ordinary runs in the sweep's directory. `at_a_time` of them run at once, here or on a Ray cluster
    (`cluster: ray`); one that fails does not stop the others. Ctrl-C saves all of them; `--resume` continues. The
    result is a table over seeds, sweep.json and plot.png; `pronk compare` says how certain it is.
    """
    from pronk.sweeps.sweeping import run_sweep

    resume = resume or retry
    plan, folder = find(file, run_dir, resume, trust)
    if dry_run:
        return show_members(plan)
    display, say = display_for(plan.name, quiet)
    outcome = run_sweep(plan, folder, resume=resume, retry=retry, display=display, say=say)
    if not quiet:
        show_outcome(outcome, plan.options.metric)
    for record in outcome.failed:
        from pronk.sweeps.display import first_line

        cause = first_line(record.cause or "unknown cause")
        err.print(Text(f"{record.member.name} failed: {cause} (log: {record.log})", "red"), soft_wrap=True)
    if outcome.interrupted or (outcome.unfinished and not outcome.failed):
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(FAILED if outcome.failed else 0)


def find(file: Path, run_dir: Path | None, resume: bool, trust: bool) -> tuple[Sweep, Path | None]:
    """Return the sweep, and its directory if it has one."""
    from pronk.runs.trust import UntrustedError, code_to_train, require_known
    from pronk.sweeps.expand import corners, read_sweep
    from pronk.sweeps.sweeping import SWEEPS

    if found := stored_folder(file, run_dir, resume, "sweep"):
        plan = SWEEPS.stored(found)
        for settings in corners(plan.options):
            require_known(code_to_train(plan.config_of(settings)), str(found), trust)
    else:
        plan = read_sweep(file)
        found = SWEEPS.newest(plan.name) if resume and run_dir is None else run_dir
    if resume and plan.options.search and plan.options.sampler == "cmaes" and not trust:
        raise UntrustedError(f"{found}: Optuna's sampler cmaes continues from a pickle, which can run any code")
    return plan, found


def stored_folder(file: Path, run_dir: Path | None, resume: bool, command: str) -> Path | None:
    """Return the directory to continue in, if `file` names one: its path, or its name under runs/."""
    from pronk.runs.reading import RUNS

    if resume and run_dir is None and not file.exists() and (RUNS / file).is_dir():
        file = RUNS / file
    if file.is_dir() and not resume:
        raise UserError(f"{file} is a directory; to continue the {command} in it: pronk {command} {file} --resume")
    return file if file.is_dir() else None


def display_for(title: str, quiet: bool) -> tuple[Any, Callable[[str], None]]:
    """Return a function that makes the display, when the number of members is known, and one that prints a line."""
    from pronk.sweeps.display import EventLines, LiveTable, Nothing

    if quiet:
        return lambda at_a_time, expected: Nothing(), warn
    if not out.is_terminal:
        return lambda at_a_time, expected: EventLines(title, at_a_time, expected, out), warn
    # A warning beside a live display has to go through the display's own console.
    return lambda at_a_time, expected: LiveTable(title, at_a_time, expected, out), lambda message: warn(message, out)


def show_members(plan: Sweep) -> None:
    """Print the members, or what a search will try."""
    members = plan.members()
    for member in members:
        out.print(Text(member.name), soft_wrap=True)
    if plan.options.search:
        count = (plan.options.trials or 0) * len(plan.seeds)
        for key, given in plan.options.search.items():
            out.print(Text(f"{key}: {given}"), soft_wrap=True)
        out.print(f"{count} members: {plan.options.trials} trials, seeds {plan.seeds}", highlight=False)
        return
    out.print(f"{len(members)} member{'s' if len(members) != 1 else ''}", highlight=False)


def show_outcome(outcome: Outcome, metric: str) -> None:
    """Print the result, and what to do next."""
    from pronk.sweeps.display import result_table

    out.print(result_table(outcome.groups, metric))
    folder = shlex.quote(str(outcome.folder))
    hints = [("curves", str(outcome.plot))] if outcome.plot else []
    hints += [("results", f"{outcome.folder}/sweep.json")]
    hints += [("compare", f"pronk compare {folder}"), ("see it", f"pronk dashboard {folder}")]
    if outcome.unfinished:
        hints.insert(0, ("continue", f"pronk sweep {folder} --resume"))
    if outcome.failed:
        hints.insert(0, ("try again", f"pronk sweep {folder} --retry"))
    for what, how in hints:
        out.print(Text(f"  {what:<12}{how}"), soft_wrap=True)
