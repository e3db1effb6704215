"""`pronk dashboard`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from pronk.cli.shell import app, out


@app.command()
def dashboard(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of runs, or one run.")] = Path("runs"),
    port: Annotated[int | None, typer.Option(help="Port to listen on [default: 8642, or a free one].")] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Show runs live in a web page: curves, speed, lag, actors, evaluation, settings that differ.

    It only reads the run directories, so it works during training and after it. It listens on this machine only; to
    look at another one: `ssh -L 8642:localhost:8642 HOST pronk dashboard`. Ctrl-C ends it.
    """
    from pronk.dashboard.server import open_folder

    with open_folder(folder, port) as server:
        try:
            out.print(
                Text(f"{folder} at").append(f" {server.url}", "bold").append("  (Ctrl-C ends it)"), soft_wrap=True
            )
            if show:
                open_in_browser(server.url)
            server.serve_forever()
        except KeyboardInterrupt:
            out.print("ended")
            raise typer.Exit from None


def open_in_browser(url: str) -> None:
    """Open the page in a browser, if there is one."""
    import webbrowser

    if not webbrowser.open(url):
        out.print("no browser found; open the address yourself")
