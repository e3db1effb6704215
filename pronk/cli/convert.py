"""`pronk convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from pronk.cli.shell import app, err, out, warn
from pronk.config import read_yaml
from pronk.types import UserError


@app.command()
def convert(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="A XingTian IMPALA configuration.")],
    to: Annotated[Path | None, typer.Option("--out", help="File to write [default: print it].")] = None,
) -> None:
    """Turn a XingTian IMPALA YAML into a Pronk one.

    What has no counterpart is named, with the reason or what to use instead, here and at the head of the new file:
    `pronk convert cartpole_impala_ms.yaml --out mine.yaml`, then `pronk train mine.yaml`. A file with lists of
    values to try (`LR: [0.001, 0.0003]`) becomes a sweep: `pronk sweep mine.yaml`. One with `use_pbt` becomes a
    population: `pronk population mine.yaml`.
    """
    from pronk.config import plain_yaml
    from pronk.config.xingtian import convert as converted
    from pronk.runs.reading import printable

    if to is not None and to.exists():
        raise UserError(f"--out: {to} exists already; choose another name")
    config, notes = converted(read_yaml(file))
    head = [f"Converted from XingTian's {file.name} by `pronk convert`."]
    # Names of files and keys may hold line breaks, and what follows one would not be a comment.
    text = "".join(f"# {printable(line)}\n" for line in [*head, *notes]) + plain_yaml.dump(config)
    if to is None:
        print(text, end="")
    else:
        try:
            to.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UserError(f"--out: cannot write {to}: {error.strerror}") from None
        command = next((name for name in ("sweep", "population") if name in config), "train")
        out.print(Text(f"{to} is ready: pronk {command} {to}"), soft_wrap=True)
    for note in notes:
        warn(note, err)
