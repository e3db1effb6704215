"""`pronk train`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from pronk.cli.shell import Overrides, Source, app, out, warn
from pronk.config import load_config
from pronk.interrupts import INTERRUPTED


@app.command()
def train(
    source: Source,
    overrides: Overrides = None,
    run_dir: Annotated[Path | None, typer.Option(help="Where to write [default: runs/NAME-DATE-TIME].")] = None,
    seed: Annotated[int | None, typer.Option(help="Short for run.seed=N.")] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with a run: PRESET is its directory, its name, or `last`."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but errors.")] = False,
) -> None:
    """Train an agent.

    `pronk train cartpole` solves CartPole in seconds. Any preset, YAML file or Gymnasium id can be changed on the spot:
    `pronk train Acrobot-v1 run.total_steps=500000 optimiser.learning_rate=3e-4`; `pronk show cartpole` lists every key.
    Ctrl-C writes a checkpoint and ends; `pronk train RUN --resume` goes on from it.
    """
    from pronk.checkpoint import find_run, plain_name
    from pronk.sinks.console import Display, PlainLines

    changes = [*(overrides or []), *([f"run.seed={seed}"] if seed is not None else [])]
    title = plain_name(Path(source).name)
    if resume:
        run = find_run(str(run_dir or source))
        run_dir, title = run.path, run.path.name
        config = load_config(run.config, changes)  # its own configuration counts, with the changes on top
    else:
        config = load_config(source, changes)
    display: Display | PlainLines | None = None
    if not quiet and out.is_terminal:
        display = Display(title, config.run.total_steps, config.run.stop_return, out)
    elif not quiet:
        display = PlainLines(title, config.run.total_steps, out)
    # A warning beside a live display has to go through the display's own console.
    say = (lambda message: warn(message, out)) if isinstance(display, Display) else warn
    from pronk.training import TrainingInterrupted
    from pronk.training import train as run_training

    code = 0
    try:
        summary = run_training(config, run_dir=run_dir, name=title, resume=resume, display=display, say=say)
    except TrainingInterrupted as interrupted:
        summary, code = interrupted.summary, INTERRUPTED
    if not quiet:
        show_summary(summary)
    raise typer.Exit(code)


def show_summary(summary: dict[str, Any]) -> None:
    """How it ended, and what to do next."""
    from pronk.sinks.console import duration

    run, steps, seconds = summary["run"], summary["env_steps"], summary["wall_seconds"]
    headline = {
        "solved": "[bold green]Solved.[/]",
        "finished": "[bold]Finished.[/]",
        "interrupted": "[bold yellow]Interrupted.[/]",
    }[summary["outcome"]]
    if not summary["checkpoint"]:
        headline += " [bold red]No checkpoint could be written.[/]"
    value = summary["episode_return"]
    score = "no episode has ended" if value is None else f"mean return {value:.1f} over the last 100 episodes"
    rate = f"{steps:,} steps in {duration(seconds)} ({steps / seconds:,.0f} steps/s)"
    out.print(f"{headline} {score}, {rate}.", highlight=False, soft_wrap=True)
    hints = [
        ("play it", f"pronk eval {shlex.quote(run)}"),
        ("watch it", f"pronk watch {shlex.quote(run)}"),
        ("plot it", f"pronk plot {shlex.quote(run)}"),
        ("see curves", f"tensorboard --logdir {shlex.quote(run)}/tensorboard"),
        ("use it", f"import pronk; policy = pronk.load({run!r})"),
    ]
    if summary["outcome"] == "interrupted":
        hints.insert(0, ("go on", f"pronk train {shlex.quote(run)} --resume"))
    for what, how in hints:
        out.print(Text(f"  {what:<12}{how}"), soft_wrap=True)
