"""Clips during training (`run.clip_every_steps`): the learner's side. `watching/filmer_process.py` is what films."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from pronk.config import ResolvedConfig
from pronk.evaluation.checkpoint_worker import CheckpointWorker
from pronk.processes.interrupts import Interrupted, Interrupts
from pronk.processes.messages import ClipFilmed, FilmClip
from pronk.runs.directory import RunDirectory

FINISH_SECONDS = 30.0  # for the last clip, when training has ended


class Filmer:
    """Has a checkpoint filmed every so many steps. A `with` block: leaving it ends the process."""

    def __init__(
        self, config: ResolvedConfig, run: RunDirectory, env_steps: int, say: Callable[[str], None], leads: bool = True
    ) -> None:
        """`leads`: whether this is learner 0, the only one that has clips filmed."""
        self._every = config.run.clip_every_steps if leads else None
        self._run, self._say = run, say
        program = "pronk.watching.filmer_process"
        self._worker = CheckpointWorker("filmer", program, "filming", run.logs / "filmer.log", config, run.checkpoints)
        self._worker.on = self._every is not None
        self._next = 0 if self._every is None else (env_steps // self._every + 1) * self._every
        self._wanted = False

    def __enter__(self) -> Filmer:
        if self._worker.on:
            self._worker.start(self._say)
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.stop()
        if self._every is None:  # of several learners, another one may be filming
            return
        for unfinished in self._run.videos.glob("*.tmp"):
            with contextlib.suppress(OSError):
                unfinished.unlink()

    def wants_checkpoint(self, env_steps: int) -> bool:
        """Return whether the next clip is due. Called at every update; also polls the process now and then."""
        if self._every is None or not self._worker.due():
            return False
        self._poll()
        self._wanted = self._worker.on and self._worker.task is None and env_steps >= self._next
        if self._wanted:
            self._next = (env_steps // self._every + 1) * self._every
        return self._wanted

    def offer(self, checkpoint: Path) -> None:
        """Film a checkpoint that was just saved, if one was wanted."""
        if self._wanted:
            self._wanted = False
            folder, name = str(self._run.videos.resolve()), checkpoint.stem
            self._worker.give(checkpoint, lambda held: FilmClip(str(held), folder, name))

    def finish(self, interrupts: Interrupts) -> None:
        """Wait a moment for a clip that is being filmed when training has ended. Ctrl-C ends the wait."""
        deadline = time.monotonic() + FINISH_SECONDS
        with contextlib.suppress(Interrupted):
            while self._worker.task is not None and time.monotonic() < deadline:
                interrupts.check()
                self._poll()
                time.sleep(0.02)
            if self._worker.task is not None:
                self._say(f"the last clip was not finished within {FINISH_SECONDS:g} s of the end, and is left out")

    def _poll(self) -> None:
        for message in self._worker.results():
            if isinstance(message, ClipFilmed):
                self._worker.done()
