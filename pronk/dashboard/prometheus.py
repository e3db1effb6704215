"""/metrics, for Prometheus: how many runs are in which state, and the newest numbers of those that are running."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pronk.dashboard.columns import number
from pronk.runs import json_lines
from pronk.runs.reading import Run

TYPE = "text/plain; version=0.0.4; charset=utf-8"
COUNTED = ("env_steps", "frames", "updates", "episodes", "wall_seconds")  # they grow; only a resume can lower them


def metrics_text(known: Mapping[str, Path]) -> str:
    """Return the text of /metrics. Every number of metrics.jsonl is `pronk_NAME`; a task's has a label `task`."""
    runs = {name: Run(path) for name, path in known.items()}
    states = Counter(run.state for run in runs.values())
    families: dict[str, list[str]] = {
        "pronk_runs": [sample("pronk_runs", states[state], state=state) for state in states]
    }
    for name, run in runs.items():
        if run.state != "running":
            continue
        labels = {"run": name, "environment": run.environment or ""}
        for family, more, value in numbers_of(run):
            families.setdefault(family, []).append(sample(family, value, **labels, **more))
    return "".join(
        f"# TYPE {family} {'counter' if family.removeprefix('pronk_') in COUNTED else 'gauge'}\n{''.join(samples)}"
        for family, samples in families.items()
    )


def numbers_of(run: Run) -> Iterator[tuple[str, dict[str, str], float]]:
    """Return name, further labels and value of every number of the newest line of metrics and of evaluations."""
    evaluation = json_lines.last(run.path / "eval.jsonl") or {}
    for prefix, line in (("pronk_", run.last), ("pronk_evaluation_", evaluation)):
        for key, value in line.items():
            if (known := number(value)) is None:
                continue
            name, _, task = (key, "", "") if key.startswith("info/") else key.partition("/")
            yield prefix + re.sub(r"\W", "_", name, flags=re.ASCII), {"task": task} if task else {}, known


def sample(family: str, value: Any, **labels: str) -> str:
    """Format one line."""
    escapes = {"\\": r"\\", '"': r"\"", "\n": r"\n"}
    pairs = (f'{key}="{"".join(escapes.get(letter, letter) for letter in text)}"' for key, text in labels.items())
    return f"{family}{{{','.join(pairs)}}} {value}\n"
