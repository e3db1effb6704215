"""`pronk actor`."""

from __future__ import annotations

import faulthandler
import os
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.control import Control
from rich.segment import ControlType

from pronk.cli.shell import FAILED, Quiet, app, out
from pronk.processes.interrupts import INTERRUPTED, Interrupted, Interrupts
from pronk.types import UserError


@app.command()
def actor(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Address of the learner.")],
    token_file: Annotated[
        Path | None, typer.Option(help="File with the learner's token [default: PRONK_TOKEN in the environment].")
    ] = None,
    ca: Annotated[
        Path | None, typer.Option(help="PEM file: trust learners whose certificate it signed. Turns TLS on.")
    ] = None,
    cert: Annotated[Path | None, typer.Option(help="PEM file: a certificate to show to the learner.")] = None,
    key: Annotated[Path | None, typer.Option(help="PEM file: the private key of --cert.")] = None,
    server_name: Annotated[
        str | None, typer.Option(help="The name in the learner's certificate, where it is not HOST (a tunnel).")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No TLS to another machine: the token travels in the clear.")
    ] = False,
    give_up_after: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="End after so long without a learner [default: never].")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Play for a learner on this or another machine.

    Everything but the address comes from the learner; an environment of your own must be importable here. Join and
    leave at any time. If the learner goes away, it is waited for; when its run has ended, so does this. `--ca` is not
    needed where HOST is this machine, or where the learner's certificate is signed by an authority that the system
    trusts.
    """
    from pronk.transport.security import TOKEN_VARIABLE, actor_credentials

    if give_up_after is not None and not give_up_after > 0:
        raise UserError(f"--give-up-after must be more than 0 seconds, got {give_up_after:g}")
    credentials = actor_credentials(address, token_file, ca, cert, key, insecure, server_name)
    os.environ.pop(TOKEN_VARIABLE, None)  # neither the environments nor their processes need it
    from pronk.actors.remote_actor import RemoteActor

    board = Board(quiet)
    remote = RemoteActor(
        address,
        credentials,
        board.say,
        board.progress,
        float("inf") if give_up_after is None else give_up_after,
        on_hang=end_hanging,
    )
    try:
        with Interrupts() as interrupts, interrupts.at_once():
            remote.run()
    except Interrupted:
        board.say("left")
        raise typer.Exit(INTERRUPTED) from None
    board.say("the learner's run has ended")
    raise typer.Exit  # it has played, whether or not its progress could be printed


def end_hanging() -> None:
    """End this process while its main thread hangs in the environment."""
    print("failed: the learner timed out waiting for an unroll; this process hangs here:", file=sys.stderr, flush=True)
    faulthandler.dump_traceback(all_threads=True)
    os._exit(FAILED)


class Board:
    """Prints events, and the speed from time to time."""

    def __init__(self, quiet: bool) -> None:
        self._quiet, self._every = quiet, 1.0 if out.is_terminal else 30.0
        self._printed_at, self._printed_steps, self._open = time.monotonic(), 0, False

    def say(self, line: str) -> None:
        """Print a line."""
        if not self._quiet:
            if self._open:
                out.print()
            self._open = False
            out.print(f"{time.strftime('%T')} {line}", highlight=False, markup=False, soft_wrap=True)
            self._printed_at = time.monotonic()

    def progress(self, steps: int) -> None:
        """Print the speed; on a terminal, over the line before."""
        now = time.monotonic()
        if self._quiet or now - self._printed_at < self._every:
            return
        rate = (steps - self._printed_steps) / (now - self._printed_at)
        text = f"{time.strftime('%T')} {steps:,} steps sent, {rate:,.0f} steps/s"
        self._printed_at, self._printed_steps = now, steps
        self._open = out.is_terminal
        if out.is_terminal:
            out.control(Control(ControlType.CARRIAGE_RETURN))  # rich removes one that is part of a text
        out.print(f"{text}   " if out.is_terminal else text, end="" if out.is_terminal else "\n", highlight=False)
