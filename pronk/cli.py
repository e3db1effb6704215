"""The commands. Each is a few lines over the library."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pronk.config import load_config, preset_names
from pronk.interrupts import INTERRUPTED
from pronk.types import Failure, UserError

FAILED, MISTAKE = 1, 2

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Train reinforcement-learning agents with IMPALA.\n\n"
    "Start with `pronk train cartpole`, then `pronk eval last`. `pronk presets` lists what else is ready to train.",
)
out, err = Console(), Console(stderr=True)

Source = Annotated[str, typer.Argument(metavar="PRESET|FILE.yaml|GYM-ID", help="What to train; see `pronk presets`.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[SECTION.KEY=VALUE]...", help="Changes, such as run.total_steps=1e6.")
]


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
        ("see curves", f"tensorboard --logdir {shlex.quote(run)}/tensorboard"),
        ("use it", f"import pronk; policy = pronk.load({run!r})"),
    ]
    if summary["outcome"] == "interrupted":
        hints.insert(0, ("go on", f"pronk train {shlex.quote(run)} --resume"))
    for what, how in hints:
        out.print(Text(f"  {what:<12}{how}"), soft_wrap=True)


@app.command("eval")
def evaluate(
    run: Annotated[str, typer.Argument(help="A run directory, its name under runs/, or `last`.")],
    episodes: Annotated[int, typer.Option(help="Whole episodes to play.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    deterministic: Annotated[bool, typer.Option("--deterministic", help="Likeliest actions, not sampled.")] = False,
    best: Annotated[bool, typer.Option("--best", help="The best checkpoint, not the newest.")] = False,
    seed: Annotated[int, typer.Option(help="Of the episodes.")] = 1,
) -> None:
    """Play whole episodes with a trained agent and print what it earned."""
    from pronk.evaluation import evaluate as play

    summary = play(run, episodes, deterministic=deterministic, best=best, seed=seed).summary()
    if as_json:
        print(json.dumps(summary))
        return
    low, high = summary["interval"]
    human = f"; {summary['human_normalised']:.0%} of a human's score" if "human_normalised" in summary else ""
    out.print(
        f"mean return [bold green]{summary['mean']:.1f}[/] +- {summary['std']:.1f} (std) over {summary['episodes']} "
        f"episodes; 95% interval of the mean {low:.1f} to {high:.1f}; "
        f"worst {summary['min']:.1f}, best {summary['max']:.1f}, mean length {summary['mean_length']:.1f}{human}",
        highlight=False,
        soft_wrap=True,
    )


@app.command()
def bench(
    source: Source,
    overrides: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    seconds: Annotated[float, typer.Option(help="Of training measured; each part alone takes a fifth of it.")] = 15.0,
) -> None:
    """Measure how fast a preset trains here, against this machine's limit.

    Environment, inference and learner are first measured alone on one core each;
    limit = cores / (1/env + 1/inference + 1/learner).
    """
    if not seconds >= 1:
        raise UserError(f"--seconds: {seconds:g} does not fit: at least 1")
    config = load_config(source, overrides)
    from pronk.bench import measure

    figures = measure(config, seconds)
    if as_json:
        print(json.dumps(figures))
        return
    table = Table("part", "steps/s", title=f"{source} on {figures['cores']} cores", title_justify="left")
    for name, meaning in [
        ("env", "environments alone, one core"),
        ("inference", "policy alone, one core"),
        ("learner", "learner alone, one core"),
        ("limit", "all of the above on every core"),
        ("trained", "whole system"),
    ]:
        table.add_row(f"{name}: {meaning}", f"{figures[name]:,.0f}")
    out.print(table)
    out.print(f"efficiency {figures['efficiency']:.0%} (trained / limit)")


@app.command()
def show(source: Source, overrides: Overrides = None) -> None:
    """Print the whole configuration after overrides as YAML, which is itself a valid FILE.yaml."""
    print(load_config(source, overrides).to_yaml(), end="")


@app.command()
def presets() -> None:
    """List the presets that come with Pronk."""
    table = Table.grid(padding=(0, 2))
    for name in preset_names():
        table.add_row(f"[bold]{name}[/]", load_config(name).description)
    out.print(table)


@app.callback(invoke_without_command=True)
def callback(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Global options."""
    if version:
        from pronk import __version__

        print(f"pronk {__version__}")
        raise typer.Exit


def warn(message: str, console: Console = err) -> None:
    """For the user, beside the results."""
    console.print(Text(message, "yellow"), soft_wrap=True)


def main() -> None:
    """Run a command; a user's mistake is one line and exit code 2, a failure its root cause and exit code 1."""
    sys.path.insert(0, os.getcwd())  # for `module:attribute` of the user's own
    try:
        code = app(standalone_mode=False)
        raise SystemExit(code if isinstance(code, int) else 0)
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except Exception as error:
        if isinstance(error, Failure):
            word, message, code = "failed:", str(error), FAILED
        elif isinstance(error, UserError):
            word, message, code = "error:", str(error), MISTAKE
        elif hasattr(error, "format_message"):  # the parser's own: a wrong option
            word, message, code = "error:", error.format_message(), MISTAKE
        else:
            raise
        if message:  # there is none where the parser has printed its help instead
            err.print(Text(word, "red"), Text(message), soft_wrap=True)
        raise SystemExit(code) from None
