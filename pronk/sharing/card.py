"""The README of a shared policy: what it plays, how well, how it was trained, how to use it."""

from __future__ import annotations

from typing import Any

from pronk import __version__
from pronk.config import Config, plain_yaml
from pronk.runs.reading import return_text

# Blocks are joined, not formatted: a program and a configuration are full of braces.


def card(name: str, environment: str, config: Config, scores: dict[str, Any], program: str) -> str:
    """Markdown with the front matter that the Hub reads."""
    front = plain_yaml.dump(front_matter(name, environment, scores["evaluation"]))
    blocks = [
        f"---\n{front}---",
        f"# {name}",
        f"A policy for **{environment}**, trained with IMPALA by Pronk {__version__}.",
        "![Mean return over environment steps](curve.png)",
        table(scores),
        "## Use it",
        "With `pip install 'pronk[export]'`; this is `model_safetensors.py`, beside the weights:",
        f"```python\n{program.rstrip()}\n```",
        "## Train it again",
        "`config.yaml` is the complete configuration:",
        f"```sh\npronk train config.yaml --seed {config.run.seed}\npronk eval last\n```",
        f"<details><summary>config.yaml</summary>\n\n```yaml\n{config.to_shared_yaml().rstrip()}\n```\n\n</details>",
    ]
    return "\n\n".join(blocks) + "\n"


def front_matter(name: str, environment: str, evaluation: dict[str, Any] | None) -> dict[str, Any]:
    """The fields that the Hub shows and searches."""
    front: dict[str, Any] = {
        "library_name": "pronk",
        "pipeline_tag": "reinforcement-learning",
        "tags": ["reinforcement-learning", "impala", environment],
    }
    if evaluation:
        score = {"type": "mean_reward", "name": "mean_reward", "value": plus_minus(evaluation), "verified": False}
        task = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
        result = {"task": task, "dataset": {"name": environment, "type": environment}, "metrics": [score]}
        front["episodes"] = evaluation["episodes"]
        front["model-index"] = [{"name": name.rpartition("/")[2], "results": [result]}]
    return front


def table(scores: dict[str, Any]) -> str:
    """The scores as a Markdown table."""
    training, evaluation = scores["training"], scores["evaluation"]
    rows = []
    if evaluation:
        how = "most probable actions" if evaluation["deterministic"] else "sampled actions"
        rows.append(("mean return", f"{plus_minus(evaluation)} over {evaluation['episodes']} episodes, {how}"))
        rows.append(("min, max", f"{return_text(evaluation['min'])}, {return_text(evaluation['max'])}"))
        tasks = [name.removeprefix("mean/") for name in evaluation if name.startswith("mean/")]
        rows += [(task, spread_text(evaluation[f"mean/{task}"], evaluation[f"std/{task}"])) for task in tasks]
        if "human_normalised" in evaluation:
            rows.append(("human-normalised", f"{evaluation['human_normalised']:.0%}"))
    minutes, seconds = divmod(round(training["wall_seconds"]), 60)
    rows += [
        ("trained for", f"{training['env_steps']:,} steps, {training['updates']:,} updates, {minutes} min {seconds} s"),
    ]
    return "\n".join(["| | |", "|---|---|", *(f"| {what} | {value} |" for what, value in rows)])


def plus_minus(evaluation: dict[str, Any]) -> str:
    return spread_text(evaluation["mean"], evaluation["std"])


def spread_text(mean: float, std: float) -> str:
    """`0.955 +/- 0.041`."""
    return f"{return_text(mean, std)} +/- {return_text(std, std)}"
