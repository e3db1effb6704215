"""Reads runs, as training left them or is writing them now; needs no torch and changes nothing.

What is read is what there is: a torn last line, a run of another version and one that has not begun all have an answer.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pronk.config import Config, read_yaml
from pronk.config.errors import nearest
from pronk.config.trees import flat
from pronk.runs import json_lines
from pronk.types import UserError

RUNS = Path("runs")
ENDED = ("finished", "solved", "interrupted", "failed")  # the outcomes of a summary.json
WHOLE = 8 * 2**20  # bytes of metrics that are read whole; of more, lines are picked
WINDOW = 100  # episodes behind a return that counts as the best; as in metrics.py


@dataclass(frozen=True)
class Run:
    """A run directory, read when asked and then remembered. `Run(path)` again looks anew."""

    path: Path
    most_lines: int = field(default=5_000, kw_only=True)
    """Of metrics, where the file is too long to be read whole."""

    @property
    def name(self) -> str:
        """The name of its directory."""
        return self.path.resolve().name

    @cached_property
    def settings(self) -> dict[str, Any]:
        """`section.key` -> value, with this version's defaults for keys that the run's version did not have."""
        return {**flat(Config().model_dump()), **flat(read_yaml(self.path / "config.yaml"))}

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, oldest first; of a very long file a part, evenly spread, with its last line."""
        return json_lines.read(self.path / "metrics.jsonl", self.most_lines, whole=WHOLE).lines

    @cached_property
    def evaluations(self) -> list[dict[str, Any]]:
        """The lines of eval.jsonl, likewise; none where the run was not evaluated."""
        return json_lines.read(self.path / "eval.jsonl", self.most_lines, whole=WHOLE).lines

    @cached_property
    def last(self) -> dict[str, Any]:
        """The newest line of metrics; empty before there is one."""
        if "metrics" in self.__dict__:
            return self.metrics[-1] if self.metrics else {}
        return json_lines.last(self.path / "metrics.jsonl") or {}

    @cached_property
    def summary(self) -> dict[str, Any]:
        """summary.json; empty where there is none, or where the run has gone on since."""
        try:
            summary = json.loads((self.path / "summary.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        if not isinstance(summary, dict) or (summary.get("updates") or 0) < (self.last.get("updates") or 0):
            return {}
        return summary

    @cached_property
    def state(self) -> str:
        """`running`, one of ENDED, or `killed`: no process holds it, and it had no time to say why."""
        if is_locked(self.path):
            return "running"
        outcome = self.summary.get("outcome")
        return outcome if outcome in ENDED else "killed"

    @cached_property
    def best_return(self) -> float | None:
        """The highest mean return over 100 episodes (over fewer, where there never were so many)."""
        lines = [line for line in self.metrics if is_number(line.get("episode_return"))]
        full = [line for line in lines if (line.get("episodes") or 0) >= WINDOW]
        return max((line["episode_return"] for line in full or lines), default=None)

    def overview(self) -> dict[str, Any]:
        """A row of a table of runs; None for what is not known yet."""
        steps, seconds = self.last.get("env_steps"), self.last.get("wall_seconds")
        return {
            "run": str(self.path),
            "name": self.name,
            "state": self.state,
            "env_steps": steps or 0,
            "best_return": self.best_return,
            "last_return": self.last.get("episode_return"),
            "steps_per_second": round(steps / seconds, 1) if steps and seconds else None,
            "wall_seconds": seconds or 0.0,
            "started": self.started,
        }

    @property
    def started(self) -> float:
        """When it was started or last resumed, in seconds since 1970."""
        try:
            return (self.path / "config.yaml").stat().st_mtime
        except OSError:
            return 0.0


def find_run_path(name: str) -> Path:
    """A run's directory by its path, by its name under runs/, or `last` for the newest there."""
    if name == "last":
        candidates = [path.parent for path in RUNS.glob("*/config.yaml")]
        if not candidates:
            raise UserError("there is no run under runs/ yet; start one with `pronk train cartpole`")
        return max(candidates, key=lambda path: (path / "config.yaml").stat().st_mtime)
    path = Path(name)
    if not path.exists() and (RUNS / name).exists():
        path = RUNS / name
    return require_run(path)


def require_run(path: Path) -> Path:
    """The path, if there is a run at it."""
    if not path.is_dir():
        known = [found.name for found in RUNS.glob("*") if found.is_dir()]
        raise UserError(f"no run directory {path}{nearest(path.name, known)}")
    if not (path / "config.yaml").is_file():
        raise UserError(f"{path} is not a run directory: it has no config.yaml")
    return path


def runs_below(folder: Path) -> list[Run]:
    """The runs in a folder and in the folders in it, newest first."""
    if not folder.is_dir():
        raise UserError(f"no directory {folder}; `pronk train` makes runs/")
    found = {path.parent for pattern in ("*/config.yaml", "*/*/config.yaml") for path in folder.glob(pattern)}
    return sorted(map(Run, found), key=lambda run: (run.started, run.name), reverse=True)


def find_runs(names: list[str]) -> list[Run]:
    """Runs by name, each once. A directory that is not a run stands for all the runs in it."""
    paths: dict[Path, None] = {}
    for name in names:
        folder = Path(name)
        inside = runs_below(folder) if folder.is_dir() and not (folder / "config.yaml").exists() else []
        for path in [run.path for run in reversed(inside)] or [find_run_path(name)]:
            paths.setdefault(path)
    return [Run(path) for path in {path.resolve(): path for path in paths}.values()]


def is_locked(path: Path) -> bool:
    """Whether a process trains here now: the kernel drops its lock with the process, however it ends.

    Asking takes a shared lock for an instant; `RunDirectory.locked` tries again for that reason.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks, on which nobody trains
        return False
    finally:
        os.close(descriptor)
    return False


def is_number(value: Any) -> bool:
    """A finite one; metrics have null where a value is not known yet."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def return_text(value: Any) -> str:
    """A return for people; more digits where it is small."""
    if not is_number(value):
        return "-"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.2f}"
