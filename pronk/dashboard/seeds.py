"""Runs that differ by their seed only, as `pronk plot` groups them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pronk.dashboard.columns import number
from pronk.plotting.comparison import compared, group_runs
from pronk.runs.reading import Run, stamp
from pronk.types import UserError


def groups_of(known: Mapping[str, Path]) -> list[dict[str, Any]]:
    """Return the groups of these runs: a label and the names of its runs. One that cannot be read is a group alone."""
    readable = {name: Run(path) for name, path in known.items() if experiment(path, stamp(path / "config.yaml"))}
    names = {run.path: name for name, run in readable.items()}
    groups = group_runs(list(readable.values())) if readable else []
    several = len({group.environment for group in groups}) > 1
    found = []
    for group in groups:
        label = " ".join(filter(None, [group.environment if several or not group.label else "", group.label]))
        found.append({"label": label, "runs": [names[run.path] for run in group.runs], "seeds": group.seeds})
    return found + [{"label": name, "runs": [name], "seeds": 1} for name in known if name not in readable]


def same_but_seed(known: Mapping[str, Path], name: str) -> list[str]:
    """Return the names of the runs that differ from this one by their seed only, this one among them."""
    wanted = experiment(known[name], stamp(known[name] / "config.yaml"))
    if wanted is None:
        return [name]
    return [other for other, path in known.items() if experiment(path, stamp(path / "config.yaml")) == wanted]


@functools.lru_cache(4096)
def experiment(path: Path, _: tuple[int, ...]) -> str | None:
    """Return the settings of a run apart from its seed; None where they cannot be read.

    The second argument, the file's stamp, makes the cache notice a change of the file.
    """
    try:
        return repr(sorted(compared(Run(path)).items(), key=str))
    except UserError:
        return None


def seed_table(known: Mapping[str, Path], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return mean and range of the latest returns of each group of several seeds."""
    together: dict[str, list[str]] = {}
    for name, path in known.items():
        if (same := experiment(path, stamp(path / "config.yaml"))) is not None:
            together.setdefault(same, []).append(name)
    several = {name: known[name] for names in together.values() if len(names) > 1 for name in names}
    if not several:
        return []
    latest = {row["name"]: row["latest"].get("episode_return") for row in rows}
    failed = {row["name"] for row in rows if row["state"] == "failed"}
    found = []
    for group in groups_of(several):
        values = [value for name in group["runs"] if (value := latest.get(name)) is not None]
        mean = number(sum(values) / len(values)) if values else None
        interval = [min(values), max(values)] if values else None
        found.append({**group, "mean": mean, "interval": interval, "failed": len(failed & set(group["runs"]))})
    return found
