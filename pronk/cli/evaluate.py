"""`pronk eval`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from pronk.cli.environment_output import environments_print_to_stderr
from pronk.cli.shell import AsJson, Best, Deterministic, EpisodeSeed, Run, TaskName, Trust, app, out
from pronk.runs.reading import return_text


@app.command("eval")
def evaluate(
    run: Run,
    episodes: Annotated[int, typer.Option(help="Whole episodes to play, of each task.")] = 100,
    task: TaskName = None,
    as_json: AsJson = False,
    deterministic: Deterministic = False,
    best: Best = False,
    seed: EpisodeSeed = 1,
    trust: Trust = False,
) -> None:
    """Play whole episodes with a trained agent and print the returns.

    Of a run with several tasks (env.tasks), each has a row, and every task has the same weight in the mean.
    """
    from pronk.evaluation.playing import evaluate as play

    with environments_print_to_stderr():
        played = play(run, episodes, deterministic=deterministic, best=best, seed=seed, task=task, trust=trust)
    summary = played.summary()
    if as_json:
        print(json.dumps(summary))
        return
    show_evaluation(summary)


def show_evaluation(summary: dict[str, Any]) -> None:
    """Print the result in one sentence, after a row for each task if there are several."""
    tasks = summary.get("tasks", {})
    if tasks:
        out.print(task_table(tasks))
    low, high = summary["interval"]
    human = f"; {summary['human_normalised']:.0%} of a human's score" if "human_normalised" in summary else ""
    if "human_normalised_median" in summary:
        median, capped = summary["human_normalised_median"], summary["human_normalised_capped"]
        human += f" (median {median:.0%}, mean capped at 100% {capped:.0%})"
    text = {key: return_text(summary[key], high - low) for key in ("mean", "std", "min", "max")}
    interval = " to ".join(return_text(end, high - low) for end in (low, high))
    of_tasks = f" of {len(tasks)} tasks" if tasks else ""
    out.print(
        f"mean return [bold green]{text['mean']}[/] +- {text['std']} (std) over {summary['episodes']} "
        f"episodes{of_tasks}; 95% interval of the mean {interval}; "
        f"worst {text['min']}, best {text['max']}, mean length {summary['mean_length']:.1f}{human}",
        highlight=False,
        soft_wrap=True,
    )


def task_table(tasks: dict[str, Any]) -> Table:
    """One row for each task."""
    has_human = any("human_normalised" in task for task in tasks.values())
    table = Table(box=None, pad_edge=False)
    table.add_column("task")
    for name in ("mean", "std", "worst", "best", "length", "episodes", *(["human"] if has_human else [])):
        table.add_column(name, justify="right")
    for name, task in tasks.items():
        low, high = task["interval"]
        numbers = [return_text(task[key], high - low) for key in ("mean", "std", "min", "max")]
        numbers.append(f"{task['mean_length']:.1f}")
        human = f"{task['human_normalised']:.0%}" if "human_normalised" in task else "-"
        table.add_row(Text(name), *numbers, str(task["episodes"]), *([human] if has_human else []))
    return table
