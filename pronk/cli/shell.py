"""What commands share: the app, the consoles, common arguments and options, and the exit codes."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import re
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Annotated, Any, ClassVar

import typer
from rich.console import Console
from rich.segment import Segment
from rich.text import Text
from typer.core import TyperArgument, TyperOption

from pronk.cli.completion import complete_override, complete_run, complete_source
from pronk.config.loading import WithoutGpu
from pronk.config.renamed import RenamedKey
from pronk.processes.collecting import collect_seldom
from pronk.processes.full_disk import NO_ROOM
from pronk.processes.interrupts import INTERRUPTED
from pronk.processes.messages import Failed
from pronk.processes.reporting import report
from pronk.runs.checkpoint import DamagedCheckpoint
from pronk.runs.reading import printable
from pronk.runs.trust import UntrustedError
from pronk.types import Failure, UserError

FAILED, MISTAKE = 1, 2  # exit codes
CANNOT_PRINT = "cannot write to the standard output: "


def hide_plain_types() -> None:
    """Keep newer versions of typer from showing flags as `--quiet <bool>` and arguments as `RUN <str>`."""
    shown = getattr(TyperOption, "display_type_rich", None)
    if shown is None:
        return

    def of_option(self: TyperOption, ctx: Any) -> str:
        kind = "" if self.is_flag else str(shown(self, ctx=ctx) or "")
        return re.sub(r"<list\[(\w+)\]>", r"<\1>", kind)  # an option that may be given several times

    TyperOption.display_type_rich = of_option  # type: ignore[method-assign]
    TyperArgument.display_type_rich = lambda self, ctx: ""  # type: ignore[method-assign]


hide_plain_types()

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Train reinforcement-learning agents with IMPALA, on one machine or many.\n\n"
    "Start with `pronk train cartpole`, then `pronk eval last`. `pronk presets` lists what else is ready to train, and "
    "`pronk COMMAND --help` explains a command.",
)


class Screen(Console):
    """A console whose output cannot end the command.

    If its reader goes away (`pronk train ... | head`) nothing more is shown; on a full disk (`pronk train ... > log`)
    what cannot be written is dropped. The command continues, and `main` reports it at the end.

    Names of runs and messages of exceptions may hold anything: escape sequences, and letters that cannot be encoded.
    Only rich's own control sequences reach the terminal.
    """

    lost: ClassVar[OSError | None] = None
    """Why part of the standard output could not be written, whichever console printed it."""

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        """Called by rich with all that is to be written. A render hook would not get the content of live displays."""
        return super()._render_buffer(
            part if part.control else Segment(printable(part.text, "\n\t"), part.style) for part in buffer
        )

    def _check_buffer(self) -> None:
        """Called by rich whenever there is something to write."""
        try:
            super()._check_buffer()
        except OSError as error:
            del self._buffer[:]
            if not self.stderr:
                Screen.lost = error

    def on_broken_pipe(self) -> None:
        """Called by rich. Its default is to exit at once, which would end a training without a checkpoint."""
        self.quiet = True
        drop_output(self.file)


out, err = Screen(), Screen(stderr=True)

Source = Annotated[
    str,
    typer.Argument(
        metavar="PRESET|FILE.yaml|GYM-ID",
        help="What to train: a preset (see `pronk presets`), a YAML file, a Gymnasium id or module:Class.",
        autocompletion=complete_source,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SECTION.KEY=VALUE]...",
        help="Settings to change, such as run.total_steps=1e6. `pronk explain` lists them.",
        autocompletion=complete_override,
    ),
]
RunDir = Annotated[Path | None, typer.Option(help="Directory to write the run to [default: runs/NAME-DATE-TIME].")]
Seed = Annotated[int | None, typer.Option(help="Seed of the run; short for run.seed=N.")]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Continue a run; PRESET is then its directory, its name under runs/, or `last`."),
]
Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="A run: its directory, its name under runs/, or `last`.", autocompletion=complete_run
    ),
]
Runs = Annotated[
    list[str],
    typer.Argument(metavar="RUN...", help="Run directories, names under runs/, `last`, or a directory of runs."),
]
Best = Annotated[bool, typer.Option("--best", help="Use the best checkpoint instead of the newest.")]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="Take the most likely action instead of sampling.")
]
EpisodeSeed = Annotated[int, typer.Option("--seed", help="Seed of the episodes.")]
TaskName = Annotated[
    str | None, typer.Option("--task", help="Of a run with several tasks: play this one only, by its name.")
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Import the environment, network and other code that somebody else's run names. It can do all you can.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]


@app.callback(invoke_without_command=True)
def callback(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        from pronk import __version__

        print(f"pronk {__version__}")
        raise typer.Exit


def warn(message: str, console: Console = err) -> None:
    """Print a warning, beside the results."""
    console.print(Text(message, "yellow"), soft_wrap=True)


def show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Print Pronk's own warnings as one line, without the line of code that Python would add."""
    if issubclass(category, (RenamedKey, WithoutGpu, DamagedCheckpoint)):
        warn(str(message))
    else:
        python_shows_warning(message, category, *where, **more)


python_shows_warning = warnings.showwarning


def exit_code(of_command: Any) -> int:
    """Return the exit code of a command that ended by itself.

    A command that only prints has no code of its own, and fails if its output could not be written. Others, such as
    `pronk train`, have done their work all the same: they end with a warning.
    """
    has_code = isinstance(of_command, int)
    if Screen.lost is None:
        return of_command if has_code else 0
    message = f"{CANNOT_PRINT}{Screen.lost}"
    if has_code:
        warn(message)
        return of_command
    err.print(Text("failed:", "red"), Text(message), soft_wrap=True)
    return FAILED


def can_print() -> bool:
    """Return whether anything can be written to the standard output."""
    try:
        print(flush=True)
    except OSError:
        return False
    return True


def drop_output(file: IO[str] | None) -> None:
    """Send what is still to be printed to /dev/null, or Python complains when it flushes at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # it may be closed, or no file at all
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), file.fileno())  # type: ignore[union-attr]


def main() -> None:
    """Run a command. A user's mistake is one line and exit code 2; a failure is its root cause and exit code 1."""
    collect_seldom()
    atexit.register(gc.freeze)  # the garbage collections at exit would visit all of torch's objects: half a second
    sys.path.insert(0, os.getcwd())  # so that `module:attribute` finds the user's modules
    warnings.showwarning = show_warning
    Screen.lost = None
    try:
        code = app(standalone_mode=False)
        if sys.stdout is not None:  # it is None with `>&-`
            sys.stdout.flush()  # here: an error at exit would be Python's own complaint
        raise SystemExit(exit_code(code))
    except BrokenPipeError:  # the reader of what a command prints has gone
        drop_output(sys.stdout)
        raise SystemExit(FAILED) from None
    except (KeyboardInterrupt, typer.Abort) as end:  # typer turns the first into the second, and EOFError, too
        if isinstance(end.__cause__, EOFError):  # such as of a truncated file
            raise end.__cause__ from None
        raise SystemExit(INTERRUPTED) from None
    except Exception as error:
        if isinstance(error, Failure):
            word, message, code = "failed:", str(error), FAILED
        elif isinstance(error, UserError):
            message = error.allowed_by("--trust") if isinstance(error, UntrustedError) else str(error)
            word, code = "error:", MISTAKE
        elif hasattr(error, "format_message"):  # typer's errors: a wrong option
            word, message, code = "error:", error.format_message(), MISTAKE
        elif isinstance(error, OSError) and error.errno in NO_ROOM:
            word, message, code = "failed:", f"{'' if can_print() else CANNOT_PRINT}{error}", FAILED
            drop_output(sys.stdout)
        else:
            raise
        report(Failed(message, mistake=code == MISTAKE))
        if message:  # empty if typer has printed its help instead
            err.print(Text(word, "red"), Text(message), soft_wrap=True)
        raise SystemExit(code) from None
