"""`pronk record`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from pronk.cli.shell import Best, Deterministic, EpisodeSeed, Run, Trust, app, out


@app.command()
def record(
    run: Run,
    to: Annotated[str, typer.Option(help="Format of the dataset: minari.")] = "minari",
    episodes: Annotated[int, typer.Option(help="Whole episodes to play.")] = 100,
    name: Annotated[
        str | None,
        typer.Option(help="Of the dataset, such as cartpole/expert-v0 [default: pronk/ENVIRONMENT-vN, with N unused]."),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Where datasets are kept [default: where Minari keeps them].")
    ] = None,
    deterministic: Deterministic = False,
    best: Best = False,
    seed: EpisodeSeed = 1,
    trust: Trust = False,
) -> None:
    """Record episodes of a trained agent as a dataset, for offline learning and imitation.

    `pronk record last --to minari` writes a Minari dataset (`pip install 'pronk[minari]'`): observations as the agent
    saw them, after env.wrappers; actions, rewards, terminations and truncations as the environment has them.
    """
    from pronk.runs.reading import return_text
    from pronk.sharing.recording import record as write

    done = write(
        run,
        to,
        episodes=episodes,
        name=name,
        folder=folder,
        deterministic=deterministic,
        best=best,
        seed=seed,
        trust=trust,
    )
    mean = sum(done.returns) / len(done.returns)
    out.print(Text("recorded: ").append(done.name, "bold green"), soft_wrap=True)
    out.print(f"  {len(done.returns)} episodes, {done.steps:,} steps, mean return {return_text(mean)}", highlight=False)
    out.print(Text(f"  {done.folder}"), soft_wrap=True)
    if folder is not None:
        out.print(
            Text(f"  first       export MINARI_DATASETS_PATH={shlex.quote(str(folder.resolve()))}"), soft_wrap=True
        )
    out.print(Text(f"  use it      import minari; dataset = minari.load_dataset({done.name!r})"), soft_wrap=True)
