"""Evaluation beside training: the learner's side. `evaluator_process.py` is what plays.

      learner --saves--> checkpoint --Evaluate(path)--> evaluator process: whole episodes, raw returns
         '--> eval.jsonl, TensorBoard, display, best.pt <--Evaluated(line)--'

Only this side writes files. `checkpoint_worker.py` keeps the process going; training continues in any case.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pronk.config import ResolvedConfig
from pronk.evaluation.checkpoint_worker import CheckpointWorker
from pronk.processes.interrupts import Interrupted, Interrupts
from pronk.processes.messages import Evaluate, Evaluated
from pronk.runs import json_lines
from pronk.runs.directory import RunDirectory
from pronk.runs.json_lines import plain
from pronk.sinks import EvaluationSink, Sink


class Evaluator:
    """Has checkpoints evaluated and records the results. A `with` block: leaving it ends the process."""

    def __init__(
        self, config: ResolvedConfig, run: RunDirectory, sinks: Sequence[Sink], say: Callable[[str], None]
    ) -> None:
        self._settings, self._run, self._say = config.evaluation, run, say
        self._sinks = [sink for sink in sinks if isinstance(sink, EvaluationSink)]
        program, log = "pronk.evaluation.evaluator_process", run.logs / "evaluator.log"
        self._worker = CheckpointWorker("evaluator", program, "evaluating", log, config, run.checkpoints)
        self._worker.on = self._settings.enabled
        self._wanted = False
        self._asked_at = time.monotonic()
        self.last: dict[str, Any] | None = None
        self._best = -math.inf
        for line in json_lines.read_all(run.evaluations) if self._worker.on else []:
            self.last, self._best = line, max(self._best, line["mean"] if line["mean"] is not None else -math.inf)

    def __enter__(self) -> Evaluator:
        if self._worker.on:
            self._worker.start(self._say)
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.stop()

    @property
    def chooses_best(self) -> bool:
        """Whether evaluations decide which checkpoint is the best; before the first, the training returns do."""
        return self._worker.on and self.last is not None

    def wants_checkpoint(self) -> bool:
        """Return whether the next evaluation is due. Called at every update; also polls the process now and then."""
        if not self._worker.due():
            return False
        self._poll()
        now = time.monotonic()
        idle = self._worker.on and self._worker.task is None
        self._wanted = idle and now - self._asked_at >= self._settings.every_seconds
        if self._wanted:
            self._asked_at = now
        return self._wanted

    def offer(self, checkpoint: Path) -> None:
        """Evaluate a checkpoint that was just saved, if one was wanted."""
        if self._wanted:
            self._wanted = False
            self._evaluate(checkpoint)

    def finish(self, checkpoint: Path, interrupts: Interrupts, aloud: bool) -> None:
        """Wait until the last checkpoint is evaluated, at most `evaluation.final_seconds`. Ctrl-C ends the wait."""
        seconds = self._settings.final_seconds
        if aloud and self._worker.on and not self.has_evaluated(checkpoint):
            self._say(
                f"evaluating the last checkpoint: {self._settings.episodes} episodes, {seconds:g} s at most; "
                "press Ctrl-C to skip"
            )
        try:
            self.evaluate_now(checkpoint, interrupts)
        except Interrupted:
            self._say("interrupted: the last checkpoint was not evaluated")

    def evaluate_now(self, checkpoint: Path, interrupts: Interrupts) -> dict[str, Any] | None:
        """Wait until a checkpoint is evaluated, at most `evaluation.final_seconds`, and return the line about it.

        None: it could not be evaluated. Raises `Interrupted`.
        """
        seconds = self._settings.final_seconds
        deadline = time.monotonic() + seconds
        while self._worker.on and not self.has_evaluated(checkpoint):
            interrupts.check()
            if self._worker.task is None and not self._evaluate(checkpoint, urgent=True):
                return None
            if time.monotonic() >= deadline:
                self._say(f"{checkpoint.name} was not evaluated within {seconds:g} s (evaluation.final_seconds)")
                return None
            self._poll()
            time.sleep(0.02)
        return self.last if self.has_evaluated(checkpoint) else None

    def has_evaluated(self, checkpoint: Path) -> bool:
        """Return whether the newest evaluation is of this checkpoint."""
        return self.last is not None and self.last["checkpoint"] == checkpoint.name

    def _evaluate(self, checkpoint: Path, urgent: bool = False) -> bool:
        return self._worker.give(checkpoint, lambda held: Evaluate(str(held), checkpoint.name, urgent))

    def _poll(self) -> None:
        """Record what the process reports."""
        for message in self._worker.results():
            if isinstance(message, Evaluated):
                self._record(message.line)

    def _record(self, line: dict[str, Any]) -> None:
        """Write an evaluation to every sink, and mark its checkpoint if it is the best (of equals, the newest)."""
        best = line["mean"] >= self._best
        self._best = max(self._best, line["mean"]) if best else self._best
        line = {**line, "best": best}
        self.last = {name: plain(value) for name, value in line.items()}
        self._worker.done()
        try:
            self._run.checkpoints.release("evaluating", best)
        except OSError as error:
            self._say(f"cannot mark the best checkpoint: {error}")
        for sink in self._sinks:
            try:
                sink.evaluated(line)
            except OSError as error:
                self._say(f"cannot write an evaluation: {error}")
