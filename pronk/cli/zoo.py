"""`pronk zoo`."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

from pronk.cli.shell import AsJson, app, out


@app.command()
def zoo(
    where: Annotated[
        str,
        typer.Argument(
            metavar="[DIR|OWNER]", help="A folder of shared policies, or an account or organisation on the Hub."
        ),
    ] = "zoo",
    as_json: AsJson = False,
) -> None:
    """List trained policies that were shared with `pronk push`: environment, score, and how to use each.

    `pronk push last ./zoo/cartpole` adds one to the folder `zoo`, and `pronk zoo` lists it. `pronk zoo OWNER` lists
    those of an account on the Hugging Face Hub; that needs `pip install 'pronk[hub]'`. The score is the mean return
    over whole episodes, with its standard deviation.
    """
    from pronk.sharing.zoo import zoo as policies

    entries = policies(where)
    if as_json:
        print(json.dumps([entry._asdict() for entry in entries], indent=2))
        return
    if not entries:
        out.print(f"no policies in {escape(where)}; `pronk push last ./zoo/NAME` adds one", highlight=False)
        return
    columns = [Column(name, no_wrap=True) for name in ("policy", "environment")]
    columns += [Column(name, no_wrap=True, justify="right") for name in ("score", "episodes")]
    table = Table(*columns, box=None, header_style="dim", padding=(0, 2, 0, 0))
    for entry in entries:
        episodes = "-" if entry.episodes is None else f"{entry.episodes:,}"
        table.add_row(*map(escape, (entry.name, entry.environment, entry.score or "-", episodes)))
    out.print(table)
    out.print()
    for entry in entries:
        out.print(Text(f"  {entry.use}"), soft_wrap=True)
