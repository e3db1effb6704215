"""`pronk export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from pronk.cli.environment_output import environments_print_to_stderr
from pronk.cli.shell import AsJson, Best, Run, TaskName, Trust, app, out


@app.command()
def export(
    run: Run,
    to: Annotated[
        str,
        typer.Option(
            metavar="FORMAT", help="Format: `onnx`, `torchscript`, `safetensors`, or your own as module:Class."
        ),
    ] = "onnx",
    file: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="File to write [default: RUN/export/policy.*].")
    ] = None,
    best: Best = False,
    task: TaskName = None,
    as_json: AsJson = False,
    trust: Trust = False,
) -> None:
    """Export a trained policy to one file.

    `onnx` runs in onnxruntime and most other engines, `torchscript` in C++ (libtorch): both work without Pronk, and
    contain everything between observation and action (scaled bytes, one-hot labels, masks, the action's range).
    `safetensors` holds the weights alone, for `pronk.load(FILE)`. A short program that uses the file is written beside
    it. The file is compared with the trained policy on observations of the real environment, and kept only if the two
    agree. A recurrent policy takes `state.*` and returns `next.*`; `first` clears the state. Several tasks share one
    policy; --task is the one whose observations it is compared on.
    """
    from pronk.exports import export as write

    with environments_print_to_stderr():
        done = write(run, to, file, best=best, task=task, trust=trust)
    if as_json:
        print(json.dumps({**done._asdict(), "file": str(done.file), "program": str(done.program)}, default=vars))
        return
    size = done.file.stat().st_size
    out.print(
        Text(str(done.file), "bold green"),
        Text(
            f"({size / 1024:,.0f} KiB), largest difference from the trained policy {done.difference:.1e}, over "
            f"{done.observations} observations of the environment"
        ),
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
    out.print(Text(f"  program: {done.program}"), soft_wrap=True)
