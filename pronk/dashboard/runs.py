"""A row of the dashboard's table for each run under a folder. `pronk.runs.reading` reads the runs."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any

from pronk.dashboard.columns import number
from pronk.runs import json_lines
from pronk.runs.reading import Run, is_run, run_paths, stamp

SPARKS = 32  # points of the small curve in the table of runs


def find(folder: Path) -> dict[str, Path]:
    """Run directories by their name, which is their path below the folder; the folder itself may be one."""
    if is_run(folder):
        return {folder.resolve().name: folder}
    return {path.relative_to(folder).as_posix(): path for path in run_paths(folder)}


def overview(path: Path) -> dict[str, Any]:
    """A row in the table of runs."""
    run = Run(path)
    settings = section(run.config, "run")
    description = run.config.get("description")
    best, sparks = returns(path, stamp(path / "metrics.jsonl"))
    return {
        "state": run.state,
        "failure": run.failure,
        "cause": run.failure_line,
        "tags": list(run.tags.tags),
        "env": run.environment,
        "description": description if isinstance(description, str) else None,
        "seed": settings.get("seed"),
        "total_steps": number(settings.get("total_steps")),
        "goal": number(settings.get("stop_return")),
        "latest": {name: known for name, value in run.last.items() if (known := number(value)) is not None},
        "sparks": sparks,
        "best": best,
        "changed": changed(path),
    }


@functools.lru_cache(4096)
def returns(path: Path, _: tuple[int, ...]) -> tuple[float | int | None, list[float | int]]:
    """The best return and a small curve of returns. The second argument makes the cache notice a change of the file."""
    run = Run(path)
    known = [value for line in run.metrics if (value := number(line.get("episode_return"))) is not None]
    return number(run.best_return), json_lines.thinned(known, SPARKS)


def section(tree: dict[str, Any], name: str) -> dict[str, Any]:
    """A part of a configuration; empty where another version has none."""
    value = tree.get(name)
    return value if isinstance(value, dict) else {}


def changed(path: Path) -> float | None:
    """When its metrics last grew, or when it was made: seconds since 1970."""
    time_of = stamp(path / "metrics.jsonl")[2] or stamp(path / "config.yaml")[2]
    return round(min(time_of / 1e9, time.time()), 1) if time_of else None
