"""What commands share: the app, the consoles, common arguments and options, and how an end becomes an exit code."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from pronk.processes.interrupts import INTERRUPTED
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
RunDir = Annotated[Path | None, typer.Option(help="Where to write [default: runs/NAME-DATE-TIME].")]
Seed = Annotated[int | None, typer.Option(help="Short for run.seed=N.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with a run: PRESET is its directory, its name, or `last`.")
]
Run = Annotated[str, typer.Argument(metavar="RUN", help="A run directory, its name under runs/, or `last`.")]


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
    atexit.register(gc.freeze)  # the garbage collections at exit would visit all of torch's objects: half a second
    sys.path.insert(0, os.getcwd())  # for `module:attribute` of the user's own
    try:
        code = app(standalone_mode=False)
        raise SystemExit(code if isinstance(code, int) else 0)
    except (KeyboardInterrupt, typer.Abort):  # the parser makes the second of the first
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
