"""`pronk export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from pronk.cli.shell import Run, app, out


@app.command()
def export(
    run: Run,
    to: Annotated[str, typer.Option(metavar="FORMAT", help="`onnx`, `torchscript` or `safetensors`.")] = "onnx",
    file: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where to write [default: RUN/export/policy.*].")
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="The best checkpoint, not the newest.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write a trained policy to one file that works without Pronk.

    `onnx` runs in onnxruntime and most other engines, `torchscript` in C++ (libtorch), `safetensors` holds the weights
    alone. Beside the file goes a short program that uses it. The file is compared with the trained policy on
    observations of the real environment, and is written only if the two agree.

    Everything between the environment and its action is inside: scaled bytes, one-hot labels, masks, the action's
    range. An agent with a memory takes its state and gives the next one; `first` clears it.
    """
    from pronk.exports.exporting import export as write

    done = write(run, to, file, best=best)
    if as_json:
        print(json.dumps({**done._asdict(), "file": str(done.file), "program": str(done.program)}, default=vars))
        return
    size = done.file.stat().st_size
    out.print(
        f"[bold green]{done.file}[/] ({size / 1024:,.0f} KiB); largest difference from the trained policy "
        f"{done.difference:.1e}, over {done.observations} observations of the environment",
        highlight=False,
        soft_wrap=True,
    )
    table = Table.grid(padding=(0, 2))
    for side, specs in (("in", done.inputs), ("out", done.outputs)):
        for name, spec in specs.items():
            shape = ", ".join(map(str, ("batch", *spec.shape)))
            table.add_row(f"  {side}", Text(name), Text(f"{spec.dtype} [{shape}]"))
    out.print(table)
    if done.note:
        out.print(Text(f"  note: {done.note}"), soft_wrap=True)
    out.print(Text(f"  use it without Pronk: python {done.program}"), soft_wrap=True)
