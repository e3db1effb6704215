"""Which runs there are under a folder, and how each of them is doing.

Everything is read from the run directories, without opening a checkpoint. What cannot be read, because it is torn,
being written or of another version of Pronk, is left out: a page that shows the rest is worth more than an error.
"""

from __future__ import annotations

import functools
import json
import os
import time
from pathlib import Path
from typing import Any

import yaml

from pronk.config import plain_yaml
from pronk.dashboard.columns import number
from pronk.runs import json_lines
from pronk.runs.reading import ENDED, is_locked

DEEPEST = 3  # folders below the one asked for: runs/sweep/a-1
SPARKS = 32  # points of the small curve in the table of runs


def find(folder: Path) -> dict[str, Path]:
    """Run directories by their name, which is their path below the folder; the folder itself may be one."""
    if is_run(folder):
        return {folder.resolve().name: folder}
    return {str(path.relative_to(folder)): path for path in below(folder, DEEPEST)}


def below(folder: Path, depth: int) -> list[Path]:
    """Runs in a folder and in the folders of it; nothing is looked for inside a run."""
    try:
        inside = sorted(Path(entry.path) for entry in os.scandir(folder) if entry.is_dir())
    except OSError:
        return []
    found = []
    for path in inside:
        if is_run(path):
            found.append(path)
        elif depth > 1 and not path.name.startswith("."):
            found += below(path, depth - 1)
    return found


def is_run(path: Path) -> bool:
    """As the rest of Pronk sees it."""
    return (path / "config.yaml").is_file()


def overview(path: Path) -> dict[str, Any]:
    """A row in the table of runs."""
    line, config = latest(path), configuration(path)
    done = summary(path)
    env, run = section(config, "env"), section(config, "run")
    values = sparks(path / "metrics.jsonl", *stamp(path / "metrics.jsonl"))
    return {
        "state": state(path, line, done),
        "env": env.get("game") or env.get("id"),
        "description": config.get("description") if isinstance(config.get("description"), str) else None,
        "seed": run.get("seed"),
        "total_steps": number(run.get("total_steps")),
        "goal": number(run.get("stop_return")),
        "latest": {name: known for name, value in line.items() if (known := number(value)) is not None},
        "sparks": values,
        "best": max(values, default=None),
        "changed": changed(path),
    }


def state(path: Path, line: dict[str, Any], done: dict[str, Any]) -> str:
    """running, solved, finished, interrupted, failed; `killed`: ended without a word; `unknown` to this version."""
    if is_locked(path):
        return "running"
    if not done or (number(line.get("updates")) or 0) > (number(done.get("updates")) or 0):
        return "killed"  # no summary, or that of an earlier session
    return done["outcome"] if done.get("outcome") in ENDED else "unknown"


def latest(path: Path) -> dict[str, Any]:
    """The last line of metrics; empty before the first."""
    return json_lines.last(path / "metrics.jsonl") or {}


def summary(path: Path) -> dict[str, Any]:
    """How it ended; empty while it has not."""
    return read_json(path / "summary.json")


def configuration(path: Path) -> dict[str, Any]:
    """As it was written; not checked, so that other versions' can be shown."""
    return read_config(path / "config.yaml", *stamp(path / "config.yaml"))


@functools.lru_cache(4096)
def read_config(path: Path, *_: int) -> dict[str, Any]:
    """The rest of the arguments tells one content from the next."""
    try:
        tree = plain_yaml.parse(path.read_text(encoding="utf-8"), plain_yaml.FastLoader)
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return tree if isinstance(tree, dict) else {}


@functools.lru_cache(4096)
def sparks(path: Path, *_: int) -> list[float]:
    """Returns over the whole run, for a small curve."""
    lines = json_lines.read(path, SPARKS).lines
    return [value for line in lines if (value := number(line.get("episode_return"))) is not None]


def stamp(path: Path) -> tuple[int, int, int]:
    """Changes when the file does."""
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0)
    return (status.st_ino, status.st_size, status.st_mtime_ns)


def read_json(path: Path) -> dict[str, Any]:
    """An object, or nothing."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def section(tree: dict[str, Any], name: str) -> dict[str, Any]:
    """A part of a configuration; empty where another version has none."""
    value = tree.get(name)
    return value if isinstance(value, dict) else {}


def changed(path: Path) -> float | None:
    """When its metrics last grew, or when it was made: seconds since 1970."""
    for name in ("metrics.jsonl", "config.yaml"):
        with_time = stamp(path / name)[2]
        if with_time:
            return round(min(with_time / 1e9, time.time()), 1)
    return None
