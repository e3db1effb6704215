"""`pronk eval`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from pronk.cli.shell import AsJson, Best, Deterministic, EpisodeSeed, Run, app, out


@app.command("eval")
def evaluate(
    run: Run,
    episodes: Annotated[int, typer.Option(help="Whole episodes to play.")] = 100,
    as_json: AsJson = False,
    deterministic: Deterministic = False,
    best: Best = False,
    seed: EpisodeSeed = 1,
) -> None:
    """Play whole episodes with a trained agent and print the returns."""
    from pronk.evaluation.playing import evaluate as play

    summary = play(run, episodes, deterministic=deterministic, best=best, seed=seed).summary()
    if as_json:
        print(json.dumps(summary))
        return
    show_evaluation(summary)


def show_evaluation(summary: dict[str, Any]) -> None:
    """Print the result in one sentence."""
    low, high = summary["interval"]
    human = f"; {summary['human_normalised']:.0%} of a human's score" if "human_normalised" in summary else ""
    out.print(
        f"mean return [bold green]{summary['mean']:.1f}[/] +- {summary['std']:.1f} (std) over {summary['episodes']} "
        f"episodes; 95% interval of the mean {low:.1f} to {high:.1f}; "
        f"worst {summary['min']:.1f}, best {summary['max']:.1f}, mean length {summary['mean_length']:.1f}{human}",
        highlight=False,
        soft_wrap=True,
    )
