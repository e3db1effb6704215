"""The sweeps under a folder: their groups over seeds, as `pronk sweep` leaves them in sweep.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pronk.dashboard.columns import number
from pronk.runs.reading import is_locked, read_json

FILES = ("sweep.json", "*/sweep.json", "*/*/sweep.json")  # below the folder


def all_sweeps(folder: Path) -> list[dict[str, Any]]:
    """Return every sweep, the newest first."""
    found = [path for pattern in FILES for path in folder.glob(pattern)]
    found.sort(key=lambda path: path.parent.name, reverse=True)
    return [sweep for path in found if (sweep := one_sweep(folder, path)) is not None]


def one_sweep(folder: Path, path: Path) -> dict[str, Any] | None:
    """Return a sweep; None if its file is torn or of another version."""
    content = read_json(path)
    members, groups = content.get("members"), content.get("groups")
    if not isinstance(members, list) or not isinstance(groups, list):
        return None
    members = [member for member in members if isinstance(member, dict)]
    below = path.parent.relative_to(folder)
    state = content.get("state")
    if state == "running" and not is_locked(path.parent):
        state = "killed"
    return {
        "name": path.parent.resolve().name,
        "state": str(state),
        "metric": str(content.get("metric")),
        "members": len(members),
        "done": sum(member.get("state") in ("finished", "solved", "pruned") for member in members),
        "groups": [one_group(group, members, below) for group in groups if isinstance(group, dict)],
    }


def one_group(group: dict[str, Any], members: list[dict[str, Any]], below: Path) -> dict[str, Any]:
    """Return a group, with the names of its runs as in the table of runs."""
    runs = [member for member in members if member.get("settings") == group.get("settings")]
    interval = group.get("interval")
    return {
        "label": str(group.get("label")),
        "mean": number(group.get("mean")),
        "interval": [number(end) for end in interval] if isinstance(interval, list) else None,
        "runs": [(below / str(member.get("run"))).as_posix() for member in runs],
        "failed": sum(member.get("state") == "failed" for member in runs),
    }
