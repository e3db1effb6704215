"""Evaluation beside training: the learner's side. `evaluator_process.py` is what plays.

      learner --saves--> checkpoint --Evaluate(path)--> evaluator process: whole episodes, raw returns
         '--> eval.jsonl, TensorBoard, display, best.pt <--Evaluated(line)--'

Only this side writes files, and the process has no state worth keeping: when it is killed it is restarted and given the
same checkpoint. Training continues in any case.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pronk.config import ResolvedConfig
from pronk.processes.interrupts import Interrupted, Interrupts
from pronk.processes.messages import Evaluate, Evaluated
from pronk.processes.restarts import RestartPolicy
from pronk.processes.supervisor import Child, ProcessFailed, Start, SupervisedProcess
from pronk.runs import json_lines
from pronk.runs.directory import RunDirectory
from pronk.runs.json_lines import plain
from pronk.sinks import EvaluationSink, Sink
from pronk.types import UserError

POLL_SECONDS = 0.1  # polling the process at every update would cost too much
GRACE_SECONDS = 2.0  # for an idle process to close its environments


class Evaluator:
    """Has checkpoints evaluated and records the results. A `with` block: leaving it ends the process."""

    def __init__(
        self, config: ResolvedConfig, run: RunDirectory, sinks: Sequence[Sink], say: Callable[[str], None]
    ) -> None:
        self._settings, self._run, self._say = config.evaluation, run, say
        self._sinks = [sink for sink in sinks if isinstance(sink, EvaluationSink)]
        self._on = self._settings.enabled
        self._task: Evaluate | None = None  # what is being evaluated
        self._task_life = 0  # which life of the process was given the task
        self._wanted = False
        self._done = 0
        self._asked_at = self._task_at = time.monotonic()
        self._poll_at = 0.0
        child = Child(
            name="the evaluator",
            program="pronk.evaluation.evaluator_process",
            log=run.logs / "evaluator.log",
            prepare=lambda life: Start({"config": config.to_yaml()}),
            # Kills are never the end: training does not depend on the evaluator.
            policy=RestartPolicy(config.actors.max_failures, max_kills=None, steady_seconds=0.0, last_pause=60.0),
            progress=lambda: self._done,
            timeout_seconds=config.actors.timeout_seconds,
            silent_seconds=self._silent_seconds,
            silence="no step",
        )
        self._process = SupervisedProcess(child, say)
        self.last: dict[str, Any] | None = None
        self._best = -math.inf
        for line in json_lines.read_all(run.evaluations) if self._on else []:
            self.last, self._best = line, max(self._best, line["mean"] if line["mean"] is not None else -math.inf)

    def __enter__(self) -> Evaluator:
        if self._on:
            self._poll()
        return self

    def __exit__(self, *_: object) -> None:
        idle = self._task is None
        self._process.stop(time.monotonic() + GRACE_SECONDS * idle)
        if self._on:
            with contextlib.suppress(OSError):
                self._run.checkpoints.release()

    @property
    def chooses_best(self) -> bool:
        """Whether evaluations decide which checkpoint is the best; before the first, the training returns do."""
        return self._on and self.last is not None

    def wants_checkpoint(self) -> bool:
        """Return whether the next evaluation is due. Called at every update; watches the process now and then."""
        now = time.monotonic()
        if not self._on or now < self._poll_at:
            return False
        self._poll_at = now + POLL_SECONDS
        self._poll()
        self._wanted = self._on and self._task is None and now - self._asked_at >= self._settings.every_seconds
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
        if aloud and self._on and not self.has_evaluated(checkpoint):
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
        while self._on and not self.has_evaluated(checkpoint):
            interrupts.check()
            if self._task is None and not self._evaluate(checkpoint, urgent=True):
                return None
            if time.monotonic() >= deadline:
                self._say(f"the last checkpoint was not evaluated within {seconds:g} s (evaluation.final_seconds)")
                return None
            self._poll()
            time.sleep(0.02)
        return self.last if self.has_evaluated(checkpoint) else None

    def has_evaluated(self, checkpoint: Path) -> bool:
        """Return whether the newest evaluation is of this checkpoint."""
        return self.last is not None and self.last["checkpoint"] == checkpoint.name

    def _evaluate(self, checkpoint: Path, urgent: bool = False) -> bool:
        try:
            held = self._run.checkpoints.hold(checkpoint)
        except OSError as error:
            self._say(f"cannot keep {checkpoint} for its evaluation: {error}")
            return False
        self._task, self._task_life = Evaluate(str(held.resolve()), checkpoint.name, urgent), 0
        self._send_task()
        return True

    def _send_task(self) -> None:
        """Give the task to a process that does not have it yet."""
        if self._task is not None and self._process.process is not None and self._task_life != self._process.lives:
            self._task_life, self._task_at = self._process.lives, time.monotonic()
            self._process.send(self._task)

    def _silent_seconds(self) -> float:
        """Since the process last reported, while it has a task; while it starts, which may take long, 0."""
        if self._task is None or not self._process.has_reported:
            return 0.0
        return time.monotonic() - max(self._process.last_message_at, self._task_at)

    def _poll(self) -> None:
        """Record what the process reports, and restart it if it died or hangs. Give up where it keeps failing."""
        try:
            for message in self._process.poll():
                if isinstance(message, Evaluated):
                    self._record(message.line)
        except (ProcessFailed, UserError) as error:
            self._on, self._task = False, None
            with contextlib.suppress(OSError):
                self._run.checkpoints.release()
            brief = error.brief if isinstance(error, ProcessFailed) else f"the evaluator failed ({error})"
            self._say(f"{brief}; training continues without it. Its log: {self._process.spec.log}")
        self._send_task()

    def _record(self, line: dict[str, Any]) -> None:
        """Write an evaluation to every sink, and mark its checkpoint if it is the best (of equals, the newest)."""
        best = line["mean"] >= self._best
        self._best = max(self._best, line["mean"]) if best else self._best
        line = {**line, "best": best}
        self.last = {name: plain(value) for name, value in line.items()}
        self._task = None
        self._done += 1
        try:
            self._run.checkpoints.release(best)
        except OSError as error:
            self._say(f"cannot mark the best checkpoint: {error}")
        for sink in self._sinks:
            try:
                sink.evaluated(line)
            except OSError as error:
                self._say(f"cannot write an evaluation: {error}")
