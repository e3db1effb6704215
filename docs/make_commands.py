"""Writes docs/commands: a page for each command, from its own `--help`. `make docs` runs this; a test compares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

from pronk.cli.shell import app

FOLDER = Path(__file__).parent / "commands"
WIDTH = 88  # of the text, wherever it is made


def pages() -> dict[str, str]:
    """File name -> content."""
    import pronk.cli  # noqa: F401 - where the commands join the app

    group: Any = get_command(app)
    top = group.context_class(group, info_name="pronk", terminal_width=WIDTH)
    found = {name: help_of(command, name, top) for name, command in group.commands.items() if not command.hidden}
    summaries = {name: group.commands[name].get_short_help_str(limit=200) for name in found}
    rows = [f"| [{name}]({name}.md) | {summary} |" for name, summary in summaries.items()]
    made_by = f"Made from `pronk COMMAND --help` by `make docs`, with typer {typer.__version__}."
    index = ["# The commands", "", made_by, "", "| | |", "|---|---|", *rows]
    index += ["", "```text", help_text(group, top), "```"]
    made = {f"{name}.md": f"# pronk {name}\n\n```text\n{text}\n```\n" for name, text in found.items()}
    return {"README.md": "\n".join(index) + "\n", **made}


def help_of(command: Any, name: str, top: Any) -> str:
    """The help of one command."""
    return help_text(command, command.context_class(command, info_name=name, parent=top, terminal_width=WIDTH))


def help_text(command: Any, context: Any) -> str:
    """Plain: without the boxes and colours of a terminal."""
    command.rich_markup_mode = None
    lines = command.get_help(context).splitlines()
    return "\n".join(line.rstrip() for line in lines).strip()


def main() -> None:
    """Write every page, and remove those of commands that are gone."""
    made = pages()
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.md"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    print(f"{FOLDER}: {', '.join(made)}")


if __name__ == "__main__":
    main()
