"""`pronk population`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from pronk.cli.shell import Quiet, Trust, app, out
from pronk.cli.sweep import display_for, stored_folder
from pronk.processes.interrupts import INTERRUPTED

if TYPE_CHECKING:
    from pronk.populations.evolving import Outcome
    from pronk.populations.plan import Population


@app.command()
def population(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE.yaml", help="A population file; with --resume also a population's directory."),
    ],
    run_dir: Annotated[
        Path | None, typer.Option(help="Directory to write the population to [default: runs/NAME-DATE-TIME].")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue a population (of --run-dir, or the newest of FILE under runs/), also after `kill -9`. "
            "A larger run.total_steps in FILE trains it further.",
        ),
    ] = False,
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="N|ray",
            help="How many members train at a time, or `ray`: on a Ray cluster [default: population.at_a_time].",
        ),
    ] = None,
    quiet: Quiet = False,
    trust: Trust = False,
) -> None:
    """Train a population: members that copy better ones, and find their settings while they train.

    The file has `base:` (a preset, a Gymnasium id or a file), settings of all members in the usual sections, and
    `population:` with `size: 8` and `priors: {optimiser.learning_rate: {low: 1e-5, high: 1e-2, log: true}}`.

    Members are ordinary runs in the population's directory. They train in rounds of `ready_steps`. After each, a member
    takes over weights and settings of a better one (more than 5% of the scale), and every setting is multiplied or
    divided by 1.2 with probability 33%, as in the paper. Each round starts every member anew, which takes some seconds.

    Ctrl-C saves all of them; `--resume` continues. The result is the newest checkpoint of the best member.
    population.json has the lineage and all settings, and `pronk plot DIR` draws them.
    """
    from pronk.populations.evolving import run_population, with_workers

    plan, folder = find(file, run_dir, resume, trust)
    if workers is not None:
        plan = with_workers(plan, workers)
    display, say = display_for(plan.name, quiet)
    outcome = run_population(plan, folder, resume=resume, display=display, say=say)
    if not quiet:
        show_outcome(outcome)
    raise typer.Exit(INTERRUPTED if outcome.interrupted else 0)


def find(file: Path, run_dir: Path | None, resume: bool, trust: bool) -> tuple[Population, Path | None]:
    """Return the population, and its directory if it has one."""
    from pronk.populations.evolving import POPULATIONS
    from pronk.populations.plan import read_population
    from pronk.runs.trust import code_to_train, require_known

    if found := stored_folder(file, run_dir, resume, "population"):
        plan = POPULATIONS.stored(found)
        require_known(code_to_train(plan.config), str(found), trust)
        return plan, found
    plan = read_population(file)
    return plan, POPULATIONS.newest(plan.name) if resume and run_dir is None else run_dir


def show_outcome(outcome: Outcome) -> None:
    """Print the result, and what to do next."""
    from pronk.runs.reading import return_text

    history, folder = outcome.history, shlex.quote(str(outcome.folder))
    result, best = history.result(), outcome.best
    headline = "[bold yellow]Interrupted[/]" if outcome.interrupted else "[bold]Finished[/]"
    rounds = len(history.rounds)
    out.print(f"{headline} after {rounds} round{'' if rounds == 1 else 's'}.", highlight=False)
    if result and best:
        settings = ", ".join(f"{key}={value}" for key, value in result["settings"].items())
        metric = str(history.facts["metric"]).removeprefix("episode_").replace("_", " ")
        text = f"Best: {best}, {metric} {return_text(result['value'])}, {result['env_steps']:,} steps, {settings}"
        out.print(Text(text), soft_wrap=True)
    share = history.startup_share()
    if share is not None:
        out.print(f"Starting the members took {share:.0%} of their time.", highlight=False)
    hints = [("continue", f"pronk population {folder} --resume")] if outcome.interrupted else []
    if best:
        hints += [("play it", f"pronk eval {shlex.quote(str(best))}")]
    hints += [("lineage", str(outcome.plot or f"pronk plot {outcome.folder}")), ("members", f"pronk runs {folder}")]
    for what, how in hints:
        out.print(Text(f"  {what:<12}{how}"), soft_wrap=True)
