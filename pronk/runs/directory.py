"""A run directory, as training writes it. `reading.py` reads it.

config.yaml      the configuration, as decided       metrics.jsonl    a line about every second
summary.json     totals, final values, the failure   checkpoints/     the last K and the best
tensorboard/     the same numbers as curves          logs/            one per process, and what each does now
eval.jsonl       a line per evaluation               lag.json         how old the experience was
bench.json       this machine's limit, where measured
notes.json       what the diagnosis found, if anything
tags.json        the user's tags and note, written by the dashboard
videos/          clips, if asked for, each with a still picture
profile/         where the time of learner and actor 0 goes, if asked for
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pronk.config import Config, read_yaml, recorded
from pronk.runs.atomic import write_atomically
from pronk.runs.checkpoint import Checkpoints
from pronk.runs.json_lines import parse, plain
from pronk.runs.reading import RUNS, find_run_path, is_number, require_run, runs_below
from pronk.types import UserError

LOCK_PAUSES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.2)  # seconds between attempts to lock a run


class RunDirectory:
    """The files of one run, and the lock of the process that trains it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = Checkpoints(path / "checkpoints")
        self.logs = path / "logs"
        self.tensorboard = path / "tensorboard"
        self.metrics = path / "metrics.jsonl"
        self.evaluations = path / "eval.jsonl"
        self.lag = path / "lag.json"
        self.notes = path / "notes.json"
        self.profile = path / "profile"
        self.videos = path / "videos"
        self.summary = path / "summary.json"
        self.config = path / "config.yaml"

    @classmethod
    def create(cls, config: Config, path: Path | None, name: str) -> RunDirectory:
        """Make a new one at `path`, which must not be in use, or at runs/NAME-DATE-TIME."""
        text = config.to_shared_yaml().encode()
        run = cls(claim(path, name))
        run.make_folders()
        write_atomically(run.config, text)
        return run

    def make_folders(self) -> None:
        for folder in (self.checkpoints.folder, self.logs, self.tensorboard):
            folder.mkdir(parents=True, exist_ok=True)

    @staticmethod
    def refuse_used(path: Path) -> None:
        """Raise unless `path` is free or an empty directory: anything in it may be another run."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UserError(f"the run directory {path} is in use; resume the run in it, or choose another directory")

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """One that exists."""
        return cls(require_run(path))

    def load_config(self) -> Config:
        """The configuration the run was made with."""
        return recorded(read_yaml(self.config), str(self.config))

    def write_config(self, config: Config) -> None:
        write_atomically(self.config, config.to_shared_yaml().encode())

    def write_summary(self, summary: dict[str, Any]) -> None:
        numbers = {name: plain(value) for name, value in summary.items()}
        write_atomically(self.summary, (json.dumps(numbers, indent=2) + "\n").encode())

    def write_failure(self, message: str, checkpoint: Path | None = None, line: dict[str, Any] | None = None) -> None:
        """Write a summary of a run that could not write its own, unless it has one.

        `line` is its last line of metrics.
        """
        if not self.summary.exists():
            saved = str(checkpoint) if checkpoint else None
            end = {"outcome": "failed", "run": str(self.path), "checkpoint": saved, **(line or {}), "failure": message}
            with contextlib.suppress(OSError):
                self.write_summary(end)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock that says "a process trains this run". The kernel drops it when the process ends."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            self._lock(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        # A reader that asks whether the run is training (`reading.is_locked`) holds the lock for an instant: retry.
        for pause in (*LOCK_PAUSES, None):
            try:
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if pause is None:
                    raise UserError(f"{self.path} is being trained by another process right now") from None
                time.sleep(pause)

    def prepare_resume(self, config: Config, updates: int) -> None:
        """Write the configuration as it is now, and remove what was written after the checkpoint at `updates`."""
        self.make_folders()
        for leftover in [*self.path.glob("*.tmp"), *self.checkpoints.folder.glob("*.tmp")]:
            leftover.unlink()
        self.checkpoints.release("evaluating")
        self.checkpoints.release("filming")
        self.write_config(config)
        for file in (self.metrics, self.evaluations):
            if file.exists():
                drop_lines_after(file, updates)
        self.summary.unlink(missing_ok=True)  # last: a run that cannot be resumed, as on a full disk, keeps it


def drop_lines_after(file: Path, updates: int) -> None:
    """Drop the lines of later updates, those that are not lines of metrics, and an incomplete last line."""
    kept = []
    for line in file.read_bytes().split(b"\n")[:-1]:
        made_at: Any = (parse(line) or {}).get("updates")
        if is_number(made_at) and made_at <= updates:
            kept.append(line + b"\n")
    write_atomically(file, b"".join(kept))


def find_run(name: str) -> RunDirectory:
    """A run by its path, by its name under runs/, or `last` for the newest there."""
    return RunDirectory(find_run_path(name))


def newest_run_of(source: str) -> RunDirectory:
    """The newest run under runs/ that was made from a preset or file and has no name of its own."""
    name = plain_name(Path(source).name)
    made = rf"{re.escape(name)}-\d{{8}}-\d{{6}}(-\d+)?"
    runs = [run for run in runs_below(RUNS) if re.fullmatch(made, run.path.name)] if RUNS.is_dir() else []
    if not runs:
        raise UserError(f"no run of {source} under {RUNS}/ yet; train it first, or name a run directory")
    return RunDirectory(runs[0].path)


def claim(path: Path | None, name: str) -> Path:
    """Make an empty run directory: at `path`, which must not be in use, or at runs/NAME-DATE-TIME."""
    try:
        if path is None:
            return make_new(RUNS, f"{plain_name(name)}-{time.strftime('%Y%m%d-%H%M%S')}")
        RunDirectory.refuse_used(path)
        path.mkdir(parents=True, exist_ok=True)
        return path
    except OSError as error:
        raise UserError(f"cannot make the run directory {path or RUNS}: {error.strerror}") from None


def make_new(parent: Path, name: str) -> Path:
    """Make a folder NAME, or NAME-2, ... where runs were started in the same second."""
    parent.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        path = parent / (name if number == 1 else f"{name}-{number}")
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            return path
    raise AssertionError("unreachable")


def plain_name(name: str) -> str:
    """A name without characters that a file system or a shell treats specially."""
    return re.sub(r"[^\w.-]+", "-", re.sub(r"\.ya?ml$", "", name)).strip("-")
