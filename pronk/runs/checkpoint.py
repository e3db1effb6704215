"""The run directory and its checkpoints.

    config.yaml      the resolved configuration          metrics.jsonl    a line about every second
    summary.json     totals and final values             checkpoints/     last K and best
    tensorboard/     the same numbers as curves          logs/            one per worker, and what each does now
    eval.jsonl       a line per evaluation (--evaluate)  lag.json         how old the experience was
    bench.json       this machine's limit, where measured

A checkpoint is written aside, synced and renamed, so one that is there is whole. It holds tensors and plain data only,
and is read without unpickling arbitrary objects.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pronk.config import Config, read_yaml, validate
from pronk.runs.reading import RUNS, find_run_path, require_run
from pronk.runs.json_lines import plain
from pronk.types import UserError

FORMAT = 1  # raise it when a checkpoint's content changes
BEST = "best.pt"
EVALUATING = "evaluating.pt"  # a second name of the checkpoint that is being evaluated, so that it stays meanwhile


class RunDirectory:
    """Where one run lives."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.logs = path / "logs"
        self.tensorboard = path / "tensorboard"
        self.metrics = path / "metrics.jsonl"
        self.evaluations = path / "eval.jsonl"
        self.lag = path / "lag.json"
        self.bench = path / "bench.json"
        self.summary = path / "summary.json"
        self.config = path / "config.yaml"

    @classmethod
    def create(cls, config: Config, path: Path | None, name: str) -> RunDirectory:
        """A new one: at `path`, which must not be in use, or at runs/NAME-DATE-TIME."""
        text = config.to_yaml().encode()
        try:
            if path is None:
                path = make_new(RUNS, f"{plain_name(name)}-{time.strftime('%Y%m%d-%H%M%S')}")
            cls.refuse_used(path)
            run = cls(path)
            run.make_folders()
        except OSError as error:
            raise UserError(f"cannot make the run directory {path or RUNS}: {error.strerror}") from None
        write_atomically(run.config, text)
        return run

    def make_folders(self) -> None:
        """Those that are not there yet."""
        for folder in (self.checkpoints, self.logs, self.tensorboard):
            folder.mkdir(parents=True, exist_ok=True)

    @staticmethod
    def refuse_used(path: Path) -> None:
        """A directory with anything in it may hold somebody's run."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UserError(f"{path} is in use; add --resume to go on with it, or choose another --run-dir")

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """One that exists."""
        return cls(require_run(path))

    def load_config(self) -> Config:
        """The configuration the run was made with."""
        return validate(read_yaml(self.config), str(self.config))

    def save(self, state: dict[str, Any], keep: int, best: bool = False) -> Path:
        """Write a checkpoint, named after its environment steps; drop the oldest beyond `keep`."""
        path = self.checkpoints / f"{state['metrics']['env_steps']:012d}.pt"
        save_atomically(path, {"format": FORMAT, **state})
        if best:
            replace_with_copy(path, self.checkpoints / BEST)
        for old in self.saved()[:-keep]:
            old.unlink()
        return path

    def hold(self, checkpoint: Path) -> Path:
        """Keep a checkpoint while it is evaluated, even if newer ones push it out. One at a time."""
        replace_with_copy(checkpoint, self.checkpoints / EVALUATING)
        return self.checkpoints / EVALUATING

    def let_go(self, best: bool = False) -> None:
        """The checkpoint that was held is the best one, or nothing special."""
        if best:
            os.replace(self.checkpoints / EVALUATING, self.checkpoints / BEST)
        else:
            (self.checkpoints / EVALUATING).unlink(missing_ok=True)

    def saved(self) -> list[Path]:
        """Checkpoints, oldest first, without the best."""
        return sorted(path for path in self.checkpoints.glob("*.pt") if re.fullmatch(r"\d+", path.stem))

    def newest(self) -> Path:
        """The newest checkpoint."""
        if not self.saved():
            raise UserError(f"{self.path} has no checkpoint yet")
        return self.saved()[-1]

    def restore(self) -> tuple[dict[str, Any], dict[Path, str]]:
        """The newest checkpoint that can be read, and what was wrong with newer ones."""
        problems: dict[Path, str] = {}
        for path in reversed(self.saved()):
            try:
                return load_checkpoint(path), problems
            except UserError as error:
                problems[path] = str(error)
        if problems:
            raise UserError(f"{self.path}: no checkpoint can be read: {'; '.join(problems.values())}")
        raise UserError(f"{self.path} has no checkpoint yet")

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Totals and final values."""
        numbers = {name: plain(value) for name, value in summary.items()}
        write_atomically(self.summary, (json.dumps(numbers, indent=2) + "\n").encode())

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """For one learner at a time; the lock ends with the process."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            self._lock(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        """Who only asks whether this run is training (`runs.is_locked`) has the lock for an instant: try again."""
        for pause in (0.01, 0.05, 0.2, None):
            try:
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if pause is None:
                    raise UserError(f"{self.path} is being trained by another process right now") from None
                time.sleep(pause)

    def go_on(self, config: Config, updates: int) -> None:
        """Ready the directory for a resumed run: its configuration as it is now, no leftovers, no later metrics."""
        self.make_folders()
        self.summary.unlink(missing_ok=True)  # it is not at its end any more
        for leftover in [*self.path.glob("*.tmp"), *self.checkpoints.glob("*.tmp")]:
            leftover.unlink()
        self.let_go()
        write_atomically(self.config, config.to_yaml().encode())
        for file in (self.metrics, self.evaluations):
            if file.exists():
                forget_lines_after(file, updates)


def forget_lines_after(file: Path, updates: int) -> None:
    """Drop lines written after the checkpoint that a resumed run goes on from, and a torn last one."""
    kept = []
    for line in file.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(ValueError):
            if json.loads(line)["updates"] <= updates:
                kept.append(line + "\n")
    write_atomically(file, "".join(kept).encode())


def find_run(name: str) -> RunDirectory:
    """A run by its path, by its name under runs/, or `last` for the newest there."""
    return RunDirectory(find_run_path(name))


def newest_run_of(source: str) -> RunDirectory:
    """The newest run under runs/ that was made from a preset or file and not given a name of its own."""
    name = plain_name(Path(source).name)
    made = rf"{re.escape(name)}-\d{{8}}-\d{{6}}(-\d+)?"
    runs = [path.parent for path in RUNS.glob("*/config.yaml") if re.fullmatch(made, path.parent.name)]
    if not runs:
        raise UserError(f"there is no run of {source} under {RUNS}/ yet; train it first, or name one with --run-dir")
    return RunDirectory.open(max(runs, key=lambda path: (path / "config.yaml").stat().st_mtime))


def make_new(parent: Path, name: str) -> Path:
    """A folder that nobody has: NAME, or NAME-2, ... where others were started in the same second."""
    parent.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        path = parent / (name if number == 1 else f"{name}-{number}")
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            return path
    raise AssertionError("unreachable")


def plain_name(name: str) -> str:
    """A name without what a file system or a shell would mind."""
    return re.sub(r"[^\w.-]+", "-", re.sub(r"\.ya?ml$", "", name)).strip("-")


def load_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint's content; plain data and tensors on the CPU."""
    import torch

    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a torn or foreign file can fail in any way
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path} cannot be read ({reason})") from None
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        found = state.get("format") if isinstance(state, dict) else None
        raise UserError(f"{path} has checkpoint format {found}; this version of Pronk reads format {FORMAT}")
    return state


def save_atomically(path: Path, state: dict[str, Any]) -> None:
    """Aside, synced, renamed. What was there before stays until the new one is whole."""
    import torch

    aside = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        with open(aside, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
        sync_directory(path.parent)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, content: bytes) -> None:
    """The same, for bytes."""
    aside = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        with open(aside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def replace_with_copy(source: Path, target: Path) -> None:
    """Make `target` a second name (or, where the file system has none, a copy) of `source`, atomically."""
    aside = target.with_suffix(f".{os.getpid()}.tmp")
    aside.unlink(missing_ok=True)
    try:
        os.link(source, aside)
    except OSError:
        shutil.copyfile(source, aside)
    os.replace(aside, target)


def sync_directory(path: Path) -> None:
    """Make a rename survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
