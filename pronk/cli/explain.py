"""`pronk explain`: what a setting means."""

from __future__ import annotations

import textwrap
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from pronk.cli.completion import complete_key
from pronk.cli.shell import app, out

WIDTH = 100  # of the text, on wide screens


@app.command()
def explain(
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="[SECTION.KEY]",
            help="A setting such as loss.entropy_cost, a section such as loss, or a key alone.",
            autocompletion=complete_key,
        ),
    ] = None,
) -> None:
    """Explain a setting: what it means, its default, where that comes from, and the values it takes.

    `pronk explain loss` explains all settings of a section, and `pronk explain` lists the sections.
    """
    from pronk.config.reference import find_knobs, sections

    if key is None:
        table = Table.grid(padding=(0, 2))
        for name, about in sections().items():
            table.add_row(Text(name, "bold"), about)
        out.print(table)
        return
    for knob in find_knobs(key):
        out.print(Text(knob.path, "bold"), soft_wrap=True)
        lines = [*textwrap.wrap(knob.meaning, min(out.width, WIDTH) - 2), f"default: {shown(knob.default)}"]
        print(textwrap.indent("\n".join([*lines, f"values:  {knob.values}"]), "  "))


def shown(value: object) -> str:
    """Return a default as it is written in a file."""
    from pronk.config.plain_yaml import dump

    return dump({"": value}).partition(":")[2].strip() or "[]"
