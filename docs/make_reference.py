"""Writes docs/reference: every setting and the Python API, from the code. `make docs` runs this; a test compares."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path
from typing import Any

import pronk
from pronk.cli.explain import shown
from pronk.config.reference import Knob, knobs, sections

FOLDER = Path(__file__).parent / "reference"
MADE = "Made from the code by `make docs`."


def pages() -> dict[str, str]:
    """File name -> content."""
    return {"settings.md": settings(), "python.md": python()}


def settings() -> str:
    """Every knob, by section."""
    everything = knobs()
    parts = [
        "# Settings",
        "",
        f"{MADE} `pronk explain KEY` shows the same. A file or the command line may set any of them:",
    ]
    parts += ["`pronk train cartpole run.seed=3 optimiser.learning_rate=3e-4`.", ""]
    for section, about in sections().items():
        parts += [f"## {section}", "", about, ""]
        for knob in everything:
            if knob.path.startswith(f"{section}."):
                parts += described(knob)
    return "\n".join(parts).rstrip() + "\n"


def described(knob: Knob) -> list[str]:
    """One knob."""
    values = f"Default: `{shown(knob.default)}`. Values: {knob.values}."
    return [f"### {knob.path}", "", *wrapped(knob.meaning), "", *wrapped(values), ""]


def wrapped(text: str) -> list[str]:
    """Lines of a paragraph; `<` and `*` of a text are not Markdown."""
    parts = text.split("`")
    parts[::2] = [part.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_") for part in parts[::2]]
    return textwrap.wrap("`".join(parts), 118, break_long_words=False, break_on_hyphens=False)


def python() -> str:
    """Every public name, with its signature and docstring."""
    parts = ["# Python", "", f"{MADE} `help(pronk)` shows the same.", "", *code(docstring(pronk), "text")]
    for name in pronk.__all__:
        made = getattr(pronk, name)
        parts += [f"## pronk.{name}", "", *code(signature(f"pronk.{name}", made)), *code(docstring(made), "text")]
        for method, function in members(made):
            parts += [f"### {name}.{method}", "", *code(signature(method, function))]
            parts += code(docstring(function), "text")
    return "\n".join(parts).rstrip() + "\n"


def members(made: Any) -> list[tuple[str, Any]]:
    """The public methods and properties that a class of ours defines itself."""
    if not inspect.isclass(made) or made is pronk.Config or issubclass(made, BaseException):
        return []
    own = [(name, value) for name, value in vars(made).items() if not name.startswith("_")]
    return [(name, value) for name, value in own if inspect.isfunction(value) or isinstance(value, property)]


def signature(name: str, made: Any) -> str:
    """Return the call, one argument a line where it is long; of what users do not make themselves, only the name."""
    if isinstance(made, property):
        return f"{name}: {made.fget.__annotations__['return'] if made.fget else ''}"
    if inspect.isclass(made) and made is not pronk.Trainer:
        fields = getattr(made, "_fields", ())
        return f"{name}({', '.join(fields)})" if fields else name
    called = inspect.signature(made)
    arguments = [str(one).replace("'", "") for one in called.parameters.values() if one.name != "self"]
    if keyword_only := [one.name for one in called.parameters.values() if one.kind is one.KEYWORD_ONLY]:
        position = [one.partition(":")[0] for one in arguments].index(keyword_only[0])
        arguments.insert(position, "*")
    result = "" if inspect.isclass(made) else f" -> {called.return_annotation}".replace("'", "")
    line = f"{name}({', '.join(arguments)}){result}"
    return line if len(line) <= 100 else f"{name}(\n    " + ",\n    ".join(arguments) + f",\n){result}"


def docstring(made: Any) -> str:
    return inspect.getdoc(made) or ""


def code(text: str, language: str = "python") -> list[str]:
    """Return a block; nothing of an empty text."""
    return [f"```{language}", text, "```", ""] if text else []


def main() -> None:
    """Write every page."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    print(f"{FOLDER}: {', '.join(pages())}")


if __name__ == "__main__":
    main()
