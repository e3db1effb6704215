"""The reader of run directories: `pronk runs`, plots, the dashboard, `pronk bench` and `pronk push` all use it.

It imports no torch and changes nothing. It reads runs that are being written, and runs of other versions of Pronk: a
file that is missing, torn or unknown counts as empty.
"""

from __future__ import annotations

import fcntl
import functools
import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from pronk.config import Config, plain_yaml, read_yaml
from pronk.config.errors import nearest
from pronk.config.renamed import rename_keys
from pronk.config.section import tasks_label
from pronk.config.trees import flat
from pronk.runs import json_lines
from pronk.runs.tags import TAGS_FILE, Tags, tags_of
from pronk.types import UserError

RUNS = Path("runs")
DEPTH = 3  # folders to look into: runs/sweep/group/run-1
ENDED = ("finished", "solved", "stopped", "interrupted", "failed")  # the outcomes of a summary.json
COMPLETE_BYTES = 2 * 2**20  # bytes of metrics that are read completely; of a longer file, about LINES lines are
LINES = 2_000
LARGEST_FILE = 2**20  # bytes of a configuration or summary
LARGEST = 2**63  # count that is believed: Pronk writes no larger ones, and they may not even fit a float
ENOUGH_EPISODES = 100  # before a mean return counts as the best; as in metrics/returns.py


@dataclass(frozen=True)
class Run:
    """A run directory. Each file is read when it is first needed, and once; make another `Run` to read it again."""

    path: Path

    @property
    def name(self) -> str:
        """The name of its directory."""
        return self.path.resolve().name

    @cached_property
    def config(self) -> dict[str, Any]:
        """config.yaml as it was written, not validated."""
        file = self.path / "config.yaml"
        return read_config(file, stamp(file))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """`section.key` -> value, under today's names, with today's defaults for keys that the run does not have.

        Raises `UserError` where config.yaml cannot be read.
        """
        defaults = default_config()
        tree = self.config or read_yaml(self.path / "config.yaml")
        return {**flat(defaults), **flat(rename_keys(tree, defaults)[0])}

    @property
    def environment(self) -> str | None:
        """What it plays, in a few words; None where its configuration does not say."""
        env = self.config.get("env")  # not validated: it may be of another version, or anything
        if not isinstance(env, dict):
            return None
        alone = env.get("game") or env.get("id")
        tasks = env.get("tasks")
        if not isinstance(tasks, list) or not tasks:
            return alone
        first = tasks[0] if isinstance(tasks[0], dict) else {"id": tasks[0]}
        return tasks_label(str(first.get("name") or first.get("game") or first.get("id") or alone), len(tasks))

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """The names of its tasks, as its metrics have them; empty if there is one."""
        return tuple(name.partition("/")[2] for name in self.last if name.startswith("episode_return/"))

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, oldest first; of a long file a part, evenly spread, with its last line."""
        return json_lines.read(self.path / "metrics.jsonl", LINES, complete_below=COMPLETE_BYTES).lines

    @cached_property
    def evaluations(self) -> list[dict[str, Any]]:
        """The lines of eval.jsonl, likewise; none where the run was not evaluated."""
        return json_lines.read(self.path / "eval.jsonl", LINES, complete_below=COMPLETE_BYTES).lines

    @cached_property
    def last(self) -> dict[str, Any]:
        """The newest line of metrics; empty before there is one."""
        if "metrics" in self.__dict__:
            return self.metrics[-1] if self.metrics else {}
        return json_lines.last(self.path / "metrics.jsonl") or {}

    @cached_property
    def summary(self) -> dict[str, Any]:
        """summary.json; empty if there is none, or if the run was continued after it was written."""
        summary = read_json(self.path / "summary.json")
        return {} if number(summary.get("updates")) < number(self.last.get("updates")) else summary

    @cached_property
    def state(self) -> str:
        """`running`, one of ENDED, `killed` (the process ended without a summary) or `unknown` to this version."""
        if is_locked(self.path):
            return "running"
        if not self.summary:
            return "killed"
        outcome = self.summary.get("outcome")
        return outcome if outcome in ENDED else "unknown"

    @property
    def failure(self) -> str | None:
        """Why a failed run failed, if its summary has the reason."""
        reason = self.summary.get("failure") if self.state == "failed" else None
        return reason if isinstance(reason, str) and reason else None

    @property
    def failure_line(self) -> str | None:
        """The same in one line: of a traceback, the line that names the error."""
        return None if self.failure is None else cause_line(self.failure)

    @cached_property
    def tags(self) -> Tags:
        """The user's tags and note."""
        return tags_of(self.read_json(TAGS_FILE))

    @cached_property
    def best_return(self) -> float | None:
        """The highest `episode_return`, not counting the first 100 episodes (unless there never were so many)."""
        lines = [line for line in self.metrics if is_number(line.get("episode_return"))]
        full = [line for line in lines if number(line.get("episodes")) >= ENOUGH_EPISODES]
        return max((line["episode_return"] for line in full or lines), default=None)

    @property
    def started(self) -> float:
        """When it was started or last resumed, in seconds since 1970."""
        return stamp(self.path / "config.yaml")[2] / 1e9

    def read_json(self, name: str) -> dict[str, Any]:
        """The object in one of its other files, such as `lag.json`; empty where there is none."""
        return read_json(self.path / name)

    def overview(self) -> dict[str, Any]:
        """A row of a table of runs; None for what is not known yet."""
        steps, seconds = number(self.last.get("env_steps")), number(self.last.get("wall_seconds"))
        return {
            "run": str(self.path),
            "name": self.name,
            "environment": self.environment,
            "state": self.state,
            "failure": self.failure,
            "tags": list(self.tags.tags),
            "env_steps": steps,
            "best_return": self.best_return,
            "last_return": self.last.get("episode_return"),
            "steps_per_second": round(steps / seconds, 1) if steps and seconds else None,
            "wall_seconds": seconds,
            "started": self.started,
        }


# ---- which runs there are


def is_run(path: Path) -> bool:
    """Whether there is a run at this path."""
    return (path / "config.yaml").is_file()


def run_paths(folder: Path, depth: int = DEPTH) -> Iterator[Path]:
    """The runs in a folder and in the folders in it, sorted by path; the folder itself, if it is a run."""
    if is_run(folder):
        yield folder
        return  # nothing is looked for inside a run
    try:
        inside = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] != ".")
    except OSError:
        return
    for name in inside if depth > 0 else ():
        yield from run_paths(folder / name, depth - 1)


def runs_below(folder: Path) -> list[Run]:
    """The runs in a folder, newest first."""
    if not folder.is_dir():
        raise UserError(f"no directory {folder}; `pronk train` makes runs/")
    return sorted(map(Run, run_paths(folder)), key=lambda run: (run.started, run.name), reverse=True)


def find_run_path(name: str) -> Path:
    """A run's directory by its path, by its name under runs/, or `last` for the newest there."""
    if name == "last":
        newest = runs_below(RUNS)[:1] if RUNS.is_dir() else []
        if not newest:
            raise UserError("there is no run under runs/ yet; start one with `pronk train cartpole`")
        return newest[0].path
    path = Path(name)
    if not path.exists() and (RUNS / name).exists():
        path = RUNS / name
    return require_run(path)


def require_run(path: Path) -> Path:
    """The path, if there is a run at it."""
    if not path.is_dir():
        known = [found.relative_to(RUNS).as_posix() for found in run_paths(RUNS)]
        raise UserError(f"no run directory {path}{nearest(path.name, known)}")
    if not is_run(path):
        raise UserError(f"{path} is not a run directory: it has no config.yaml")
    return path


def find_runs(names: list[str]) -> list[Run]:
    """Runs by name, each once. A directory that is not a run stands for all the runs in it, oldest first."""
    paths: dict[Path, Path] = {}
    for name in names:
        folder = Path(name)
        inside = runs_below(folder) if folder.is_dir() else []
        for path in [run.path for run in reversed(inside)] or [find_run_path(name)]:
            paths.setdefault(path.resolve(), path)
    return [Run(path) for path in paths.values()]


# ---- files


@functools.lru_cache(4096)
def read_config(path: Path, _: tuple[int, ...]) -> dict[str, Any]:
    """The mapping in a config.yaml. The second argument makes the cache notice a change of the file."""
    try:
        tree = plain_yaml.parse(read_text(path), plain_yaml.FastLoader)
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return tree if isinstance(tree, dict) else {}


@functools.cache
def default_config() -> dict[str, Any]:
    return Config().model_dump()


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file of JSON; empty where there is none."""
    try:
        value = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def read_text(path: Path) -> str:
    """Return the text of a file that is never long. Raises OSError or ValueError if it is too long, or not text."""
    with json_lines.open_regular(path) as file:
        text = json_lines.read_exactly(file, LARGEST_FILE + 1)
    if len(text) > LARGEST_FILE:
        raise ValueError(f"{path} is too large")
    return text.decode()


def stamp(path: Path) -> tuple[int, int, int]:
    """Inode, size and time of change in nanoseconds; changes when the file does."""
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0)
    return (status.st_ino, status.st_size, status.st_mtime_ns)


def is_locked(path: Path) -> bool:
    """Whether a process trains this run now. The kernel drops its lock with the process, however it ends.

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
    except OSError:  # a file system without locks cannot be trained on
        return False
    finally:
        os.close(descriptor)
    return False


# ---- values


def is_number(value: Any) -> bool:
    """Whether it is a finite number; metrics have null where a value is not known yet."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < LARGEST if isinstance(value, int) else math.isfinite(value)


def number(value: Any) -> Any:
    """The number, or 0 where it is none."""
    return value if is_number(value) else 0


def printable(text: str, also: str = "") -> str:
    """Return a text without characters that control a terminal or cannot be shown. Folder names may hold anything.

    `also` are characters to keep.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in also else "?" for letter in text)


def cause_line(failure: str) -> str:
    """Return a failure in one line: `actor 1 failed 3 times in a row: ValueError: no bananas`."""
    lines = [line for line in failure.strip().splitlines() if line.strip()] or ["unknown cause"]
    before, traceback, _ = lines[0].partition("Traceback (most recent call last):")
    return f"{before}{lines[-1].strip()}" if traceback else lines[0]


def return_text(value: Any, spread: float | None = None) -> str:
    """Format a return: with a decimal at least, three significant digits, and two of its `spread` if that is given.

    return_text(498.72) == "498.7", return_text(0.95533) == "0.955", return_text(0.95533, 0.0041) == "0.9553"
    """
    if not is_number(value):
        return "-"
    digits = decimals(spread) if spread else decimals(abs(value), 3)
    return f"{value:,.{max(1, digits)}f}"


def decimals(size: float, significant: int = 2) -> int:
    """Return how many decimals show this many significant digits of a number; at most 6."""
    if size == 0 or not math.isfinite(size):
        return significant - 1
    return min(6, max(0, significant - 1 - math.floor(math.log10(size))))
