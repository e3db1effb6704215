"""`pronk debug`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.text import Text

from pronk.cli.shell import Run, Trust, app, out

SHOWN = 8  # broken tensors, and arrays of the batch


@app.command()
def debug(
    run: Run,
    learner: Annotated[int, typer.Option(help="Which of several learners had the batch.")] = 0,
    trust: Trust = False,
) -> None:
    """Re-run the learner step whose loss or gradient was NaN or infinite, and name the first tensor that is not finite.

    A run saves such a step in its directory (broken_batch.pt), whether it ends with it or drops it
    (learner.on_nan=skip).
    """
    from pronk.debugging import debug as run_again

    step = run_again(run, learner=learner, trust=trust)
    out.print(
        Text(f"{step.file}: the update after {step.version:,} others, {step.columns} columns of {step.steps} steps"),
        soft_wrap=True,
    )
    if step.broken:
        out.print(f"[bold red]first not finite:[/] {escape(str(step.broken[0]))}", highlight=False, soft_wrap=True)
    else:
        out.print("every tensor of this step is finite here; was it on another device, or in bfloat16?")
    for one in step.broken[1:SHOWN]:
        out.print(f"then {escape(str(one))}", highlight=False, soft_wrap=True)
    if len(step.broken) > SHOWN:
        out.print(f"and {len(step.broken) - SHOWN} more", highlight=False)
    values = ", ".join(f"{name} {value:.4g}" for name, value in list(step.largest.items())[:SHOWN])
    out.print(f"largest values of the batch: {escape(values)}", highlight=False, soft_wrap=True)
