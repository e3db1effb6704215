"""`pronk push`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from pronk.cli.shell import Best, Run, Trust, app, out


@app.command()
def push(
    run: Run,
    repo: Annotated[
        str,
        typer.Argument(
            metavar="REPO", help="Where to: owner/name on the Hugging Face Hub, or a folder such as ./shared."
        ),
    ],
    best: Best = False,
    episodes: Annotated[
        int, typer.Option(help="Episodes to play for the score, if the run has not evaluated this checkpoint; 0: none.")
    ] = 20,
    public: Annotated[
        bool, typer.Option("--public", help="Make a new repository public, or push to a public one.")
    ] = False,
    trust: Trust = False,
) -> None:
    """Share a trained policy on the Hugging Face Hub, or in a folder.

    It sends the weights (safetensors), a program that loads them with Pronk, config.yaml, the scores, the learning
    curve, and a README that shows all of it. Nothing else leaves the machine: no logs, no checkpoints, no paths.

    Pushing to a folder (`pronk push last ./shared`) needs no account and shows what would be sent. The Hub needs
    `pip install 'pronk[hub]'` and, once, `hf auth login`.
    """
    from pronk.runs.reading import return_text
    from pronk.sharing import push as share

    done = share(run, repo, best=best, episodes=episodes, public=public, trust=trust)
    out.print(Text("shared: ").append(done.address, "bold green"), soft_wrap=True)
    evaluation = done.scores["evaluation"]
    if evaluation:
        out.print(
            f"  mean return {return_text(evaluation['mean'], evaluation['std'])} +- "
            f"{return_text(evaluation['std'], evaluation['std'])} over {evaluation['episodes']} episodes",
            highlight=False,
        )
    for file in done.files:
        out.print(Text(f"  {file}"), soft_wrap=True)
