"""`pronk train`."""

from __future__ import annotations

import enum
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from pronk.cli.shell import Overrides, Quiet, Resume, RunDir, Seed, Source, Trust, app, out, warn
from pronk.config import Config, load_config, override
from pronk.processes.interrupts import INTERRUPTED
from pronk.types import UserError

if TYPE_CHECKING:
    from pronk.learners import Rendezvous
    from pronk.sinks.console import Display, PlainLines


class Task(enum.StrEnum):
    """The values of `-t`, as in XingTian."""

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
            help="Also play whole episodes with the newest weights, in a process of its own, every "
            "evaluation.every_seconds. The best checkpoint is then chosen by these.",
        ),
    ] = False,
    task: Annotated[
        Task,
        typer.Option(
            "-t",
            "--task",
            help="For users of XingTian: train_with_evaluate is the same as --evaluate; evaluate trains nothing, and "
            "plays the newest run of PRESET under runs/ (or the run in --run-dir).",
        ),
    ] = Task.TRAIN,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="Show where the time of the learner and of an actor goes; short for run.profile_seconds=5.",
        ),
    ] = False,
    quiet: Quiet = False,
    trust: Trust = False,
) -> None:
    """Train an agent.

    `pronk train cartpole` solves CartPole in seconds. A preset, a YAML file or any Gymnasium id can be trained, and
    every setting can be changed on the command line: `pronk train Acrobot-v1 run.total_steps=500000
    optimiser.learning_rate=3e-4`. `pronk show cartpole` lists all settings, `pronk explain KEY` explains one.

    The results go to a new directory under runs/: metrics, checkpoints, logs and the configuration. Ctrl-C saves a
    checkpoint and ends; `pronk train RUN --resume` continues from it.

    `learners.count=2` trains with two learners that act as one, `cluster=ray` on a Ray cluster; `pronk learner` and
    `pronk launch` use other machines.
    """
    changes = with_seed(overrides, seed)
    if task == Task.EVALUATE:
        return evaluate_newest(source, changes, run_dir, trust)
    if evaluate or task == Task.TRAIN_WITH_EVALUATE:
        changes.append("evaluation.enabled=true")
    if profile:
        changes.append("run.profile_seconds=5")
    start(source, changes, run_dir=run_dir, resume=resume, quiet=quiet, trust=trust)


def start(
    source: str,
    changes: list[str],
    *,
    run_dir: Path | None,
    resume: bool,
    quiet: bool,
    trust: bool = False,
    listen_on: str | None = None,
) -> None:
    """Train, and exit with the code of the outcome: what `pronk train` and `pronk learner` do.

    `listen_on` is where actors can join unless gateway.address says something else.
    """
    from pronk.learners import find_rendezvous, rendezvous_in

    resume = resume or is_restart(run_dir)
    if resume:
        participate_if_further(rendezvous_in(changes))  # before looking for the run, which learner 0 alone may have
    config, title, run_dir = plan_of(source, changes, None, resume, run_dir, trust)
    if not resume:
        participate_if_further(find_rendezvous(config.learners))
    if listen_on is not None and config.gateway.address is None:
        config = config.replace({"gateway.address": listen_on})
    if listen_on is not None and resume and config.actors.count == "auto":  # `record` writes auto for 0
        config = config.replace({"actors.count": 0})
    display, say = display_for(title, config, quiet)
    from pronk.processes import forced_exit
    from pronk.starting import TrainingInterrupted
    from pronk.starting import train as run_training

    try:
        with forced_exit.allowed():
            summary = run_training(config, run_dir=run_dir, name=title, resume=resume, display=display, say=say)
    except TrainingInterrupted as interrupted:
        summary = interrupted.summary
    end_with(summary, quiet, " ".join(["pronk train {} --resume", *cluster_overrides(config)]))


def is_restart(run_dir: Path | None) -> bool:
    """Return whether torchrun has restarted this command (`--max-restarts`) and there is a checkpoint."""
    from pronk.runs.directory import RunDirectory

    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if run_dir is None or not restarts.isdigit() or int(restarts) == 0:
        return False
    return bool(RunDirectory(run_dir).checkpoints.saved()) or int(os.environ.get("RANK", "0")) > 0


def cluster_overrides(config: Config) -> list[str]:
    """Return what a resumed run on a Ray cluster must be given again, because it is not saved with the run."""
    if config.cluster.name == "local":
        return []
    changed = config.cluster.model_dump(exclude_defaults=True)
    name = changed.pop("name")
    settings = [f"cluster.{key}={value}" for key, value in changed.items()]
    return [shlex.quote(one) for one in [f"cluster={name}", *settings, f"actors.count={config.actors.count}"]]


def with_seed(overrides: list[str] | None, seed: int | None) -> list[str]:
    return [*(overrides or []), *([f"run.seed={seed}"] if seed is not None else [])]


def plan_of(
    source: str,
    overrides: list[str] | None,
    seed: int | None,
    resume: bool,
    run_dir: Path | None,
    trust: bool = False,
) -> tuple[Config, str, Path | None]:
    """Return what to train, what to call it, and where to write it. `trust`: import the code of a run to resume."""
    from pronk.runs.directory import find_run, plain_name
    from pronk.runs.reading import is_run
    from pronk.runs.trust import code_to_train, require_known

    changes = with_seed(overrides, seed)
    if resume:
        run = find_run(str(run_dir or source))
        recorded = run.load_config().without_host()
        require_known(code_to_train(recorded), str(run.path), trust)  # what the overrides name is the user's own
        return override(recorded, changes), run.path.name, run.path
    if is_run(Path(source)):
        raise UserError(f"{source} is a run; to continue it: pronk train {source} --resume")
    return load_config(source, changes), plain_name(Path(source).name), run_dir


def display_for(title: str, config: Config, quiet: bool) -> tuple[Display | PlainLines | None, Callable[[str], None]]:
    """Return the sink that shows the progress, and the function that prints a line beside it."""
    from pronk.runs.reading import printable
    from pronk.sinks.console import Display, PlainLines

    title = printable(title)
    if quiet:
        return None, warn
    if not out.is_terminal:
        return PlainLines(title, config.run.total_steps, out), warn
    # A warning beside a live display has to go through the display's own console.
    return Display(title, config.run.total_steps, config.run.stop_return, out), lambda message: warn(message, out)


def end_with(summary: dict[str, Any], quiet: bool, resume_command: str) -> None:
    """Print how the run ended, and exit. `resume_command` has {} for the run."""
    if not quiet:
        show_summary(summary, resume_command)
    raise typer.Exit(INTERRUPTED if summary["outcome"] == "interrupted" else 0)


def participate_if_further(rendezvous: Rendezvous) -> None:
    """If this is a learner other than 0, run it and exit. Return if it is learner 0, which shows the progress."""
    if rendezvous.rank == 0:
        return
    from pronk.processes import forced_exit
    from pronk.starting import TrainingInterrupted, train_as_participant

    try:
        with forced_exit.allowed():
            train_as_participant(rendezvous, warn)
    except TrainingInterrupted:
        raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit


def evaluate_newest(source: str, changes: list[str], run_dir: Path | None, trust: bool) -> None:
    """`-t evaluate`: play the newest checkpoint of the newest run of a preset or file.

    A run is evaluated as it was trained: nothing but the section `evaluation` can be changed.
    """
    from pronk.cli.environment_output import environments_print_to_stderr
    from pronk.cli.evaluate import show_evaluation
    from pronk.evaluation.playing import evaluate
    from pronk.runs.directory import find_run, newest_run_of

    for change in changes:
        if not change.startswith("evaluation."):
            raise UserError(f"{change}: -t evaluate plays a run as it was trained; only evaluation.* can be changed")
    settings = load_config(source, changes).evaluation
    run = find_run(str(run_dir)) if run_dir else newest_run_of(source)
    out.print(Text(f"{run.path}, {run.checkpoints.newest().name}:"), soft_wrap=True)
    with environments_print_to_stderr():
        played = evaluate(
            run.path, settings.episodes, deterministic=settings.deterministic, seed=settings.seed, trust=trust
        )
    show_evaluation(played.summary())


def score_text(summary: dict[str, Any]) -> str:
    """Describe the return of the latest episodes."""
    from pronk.runs.reading import return_text
    from pronk.sinks.console import task_returns

    value, tasks = summary["episode_return"], task_returns(summary)
    if value is None:
        return f"no mean return yet ({tasks})" if tasks else "no episode has ended"
    return f"mean return {return_text(value)} of the latest episodes{f' ({tasks})' if tasks else ''}"


def show_summary(summary: dict[str, Any], resume_command: str) -> None:
    """Print how the run ended, and what to do next."""
    from pronk.sinks.console import duration, evaluation

    run, steps, seconds = summary["run"], summary["env_steps"], summary["wall_seconds"]
    headline = {
        "solved": "[bold green]Solved.[/]",
        "finished": "[bold]Finished.[/]",
        "stopped": "[bold]Stopped.[/]",
        "interrupted": "[bold yellow]Interrupted.[/]",
    }[summary["outcome"]]
    if not summary["checkpoint"]:
        headline += " [bold red]No checkpoint could be written.[/]"
    score = score_text(summary)
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
        hints.insert(0, ("continue", resume_command.format(shlex.quote(run))))
    profile = Path(run) / "profile"
    if any(profile.glob("*.json.gz")):
        hints.append(("trace", f"open {profile}/*.json.gz in https://ui.perfetto.dev"))
    for what, how in hints:
        out.print(Text(f"  {what:<12}{how}"), soft_wrap=True)
    show_tables(profile, summary["outcome"])


def show_tables(profile: Path, outcome: str) -> None:
    """Print the tables of a profile, if there is one."""
    tables = sorted(profile.glob("*.txt"))
    for table in tables:
        text = table.read_text(encoding="utf-8").rstrip()
        out.print(Text(f"Where the time of {table.stem} went:\n{text}"), soft_wrap=True)
    if not all(table.with_suffix(".json.gz").exists() for table in tables):
        longer = "add run.stop_return=null" if outcome == "solved" else "train longer"
        out.print(
            f"The run ended before all traces were written; for these, {longer}.", highlight=False, soft_wrap=True
        )
