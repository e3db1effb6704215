"""`pronk train`."""

from __future__ import annotations

import enum
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from pronk.cli.shell import Overrides, Resume, RunDir, Seed, Source, app, out, warn
from pronk.config import load_config
from pronk.interrupts import INTERRUPTED
from pronk.types import UserError

if TYPE_CHECKING:
    from pronk.learners import Place


class Task(enum.StrEnum):
    """XingTian's words."""

    TRAIN = "train"
    EVALUATE = "evaluate"
    TRAIN_WITH_EVALUATE = "train_with_evaluate"


@app.command()
def train(
    source: Source,
    overrides: Overrides = None,
    run_dir: RunDir = None,
    seed: Seed = None,
    resume: Resume = False,
    evaluate: Annotated[
        bool,
        typer.Option(
            "--evaluate",
            help="Beside the training, play whole episodes with its newest weights now and then (section evaluation).",
        ),
    ] = False,
    task: Annotated[
        Task,
        typer.Option(
            "-t",
            "--task",
            help="As in XingTian: train_with_evaluate is --evaluate; evaluate trains nothing and plays the newest run "
            "of PRESET under runs/, or that of --run-dir.",
        ),
    ] = Task.TRAIN,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but errors.")] = False,
) -> None:
    """Train an agent.

    `pronk train cartpole` solves CartPole in seconds. Any preset, YAML file or Gymnasium id can be changed on the spot:
    `pronk train Acrobot-v1 run.total_steps=500000 optimiser.learning_rate=3e-4`; `pronk show cartpole` lists every key.
    `learners.count=2` trains with two learners that act as one.
    Ctrl-C writes a checkpoint and ends; `pronk train RUN --resume` goes on from it.
    """
    from pronk.checkpoint import find_run, plain_name
    from pronk.learners import find_place, place_in
    from pronk.sinks.console import Display, PlainLines

    changes = [*(overrides or []), *([f"run.seed={seed}"] if seed is not None else [])]
    if task == Task.EVALUATE:
        return evaluate_newest(source, changes, run_dir)
    if evaluate or task == Task.TRAIN_WITH_EVALUATE:
        changes.append("evaluation.enabled=true")
    title = plain_name(Path(source).name)
    if resume:
        follow_if_further(place_in(changes))  # before looking for the run, which learner 0 alone may have
        run = find_run(str(run_dir or source))
        run_dir, title = run.path, run.path.name
        config = load_config(run.config, changes)  # its own configuration counts, with the changes on top
    else:
        config = load_config(source, changes)
        follow_if_further(find_place(config.learners))
    display: Display | PlainLines | None = None
    if not quiet and out.is_terminal:
        display = Display(title, config.run.total_steps, config.run.stop_return, out)
    elif not quiet:
        display = PlainLines(title, config.run.total_steps, out)
    # A warning beside a live display has to go through the display's own console.
    say = (lambda message: warn(message, out)) if isinstance(display, Display) else warn
    from pronk.starting import TrainingInterrupted
    from pronk.starting import train as run_training

    code = 0
    try:
        summary = run_training(config, run_dir=run_dir, name=title, resume=resume, display=display, say=say)
    except TrainingInterrupted as interrupted:
        summary, code = interrupted.summary, INTERRUPTED
    if not quiet:
        show_summary(summary)
    raise typer.Exit(code)


def follow_if_further(place: Place) -> None:
    """All that a further learner does. Learner 0 is the one to watch."""
    if place.rank == 0:
        return
    from pronk.starting import TrainingInterrupted, follow

    try:
        follow(place, warn)
    except TrainingInterrupted:
        raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit


def evaluate_newest(source: str, changes: list[str], run_dir: Path | None) -> None:
    """`-t evaluate`: play the newest checkpoint of the newest run of a preset or file.

    A run is evaluated as it was trained: nothing but the section `evaluation` can be changed.
    """
    from pronk.checkpoint import find_run, newest_run_of
    from pronk.cli.evaluate import show_evaluation
    from pronk.evaluation import evaluate

    for change in changes:
        if not change.startswith("evaluation."):
            raise UserError(f"{change}: -t evaluate plays a run as it was trained; only evaluation.* can be changed")
    settings = load_config(source, changes).evaluation
    run = find_run(str(run_dir)) if run_dir else newest_run_of(source)
    out.print(Text(f"{run.path}, {run.newest().name}:"), soft_wrap=True)
    played = evaluate(run.path, settings.episodes, deterministic=settings.deterministic, seed=settings.seed)
    show_evaluation(played.summary())


def show_summary(summary: dict[str, Any]) -> None:
    """How it ended, and what to do next."""
    from pronk.sinks.console import duration, evaluation

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
    if summary["evaluation"]:
        out.print(f"Evaluated: {evaluation(summary['evaluation'])}.", highlight=False, soft_wrap=True)
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
