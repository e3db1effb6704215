"""Evaluation beside training: the learner's side. `evaluator_process.py` is what plays.

      learner --saves--> checkpoint --named on a pipe--> evaluator process: whole episodes, raw returns
         '--> eval.jsonl, TensorBoard, display, best.pt <--one line over a pipe--'

Only this side writes files, and the process has nothing that could be lost: when it is killed it is started again and
given the same checkpoint. Whatever becomes of it, the training goes on.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pronk.config import ResolvedConfig
from pronk.processes import legacy_child as child
from pronk.processes.interrupts import Interrupted, Interrupts
from pronk.runs import json_lines
from pronk.runs.directory import RunDirectory
from pronk.runs.json_lines import plain
from pronk.sinks import EvaluationSink, Sink

LOOK_SECONDS = 0.1  # how often a look is worth its cost
GRACE_SECONDS = 2.0  # for an idle one to close its environments
FIRST_PAUSE, LAST_PAUSE = 0.1, 60.0  # seconds, before it is started again


class Evaluator:
    """A process that evaluates checkpoints, and what comes of it. A `with` block: leaving it leaves no process."""

    def __init__(
        self, config: ResolvedConfig, run: RunDirectory, sinks: Sequence[Sink], say: Callable[[str], None]
    ) -> None:
        self._config, self._settings, self._run, self._say = config, config.evaluation, run, say
        self._sinks = [sink for sink in sinks if isinstance(sink, EvaluationSink)]
        self._log = run.logs / "evaluator.log"
        self._on = self._settings.enabled
        self._process: subprocess.Popen[bytes] | None = None
        self._answers, self._unread = -1, b""
        self._task: dict[str, str] | None = None  # what is being evaluated
        self._wanted = False
        self._lives = self._deaths = self._faults = 0  # the last two since it last answered
        self._asked_at = time.monotonic()
        self._heard_at = math.inf  # until it first speaks: on a busy machine its start may take long
        self._look_at = self._start_at = 0.0
        self.last: dict[str, Any] | None = None
        self._best = -math.inf
        for line in json_lines.read_all(run.evaluations) if self._on else []:
            self.last, self._best = line, max(self._best, line["mean"] if line["mean"] is not None else -math.inf)

    def __enter__(self) -> Evaluator:
        if self._on:
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._task is None:
            child.hang_up(self._process)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_SECONDS)
        self._bury()
        if self._on:
            with contextlib.suppress(OSError):
                self._run.checkpoints.release()

    @property
    def chooses_best(self) -> bool:
        """Whether the best checkpoint is known by evaluations; before the first, training's own returns must do."""
        return self._on and self.last is not None

    def wants_checkpoint(self) -> bool:
        """Whether it is time for the next one. Called at every update; looks after the process now and then."""
        now = time.monotonic()
        if not self._on or now < self._look_at:
            return False
        self._look_at = now + LOOK_SECONDS
        self._look()
        self._wanted = self._on and self._task is None and now - self._asked_at >= self._settings.every_seconds
        if self._wanted:
            self._asked_at = now
        return self._wanted

    def offer(self, checkpoint: Path) -> None:
        """A checkpoint was saved; it is evaluated if one was wanted."""
        if self._wanted:
            self._wanted = False
            self._evaluate(checkpoint)

    def finish(self, checkpoint: Path, interrupts: Interrupts, aloud: bool) -> None:
        """Wait until the last checkpoint is evaluated, within reason. Ctrl-C ends the waiting and nothing else."""
        seconds = self._settings.final_seconds
        deadline = time.monotonic() + seconds
        if aloud and self._on and not self.has_evaluated(checkpoint):
            self._say(
                f"evaluating the last checkpoint: {self._settings.episodes} episodes, {seconds:g} s at most; "
                "Ctrl-C does without"
            )
        try:
            while self._on and not self.has_evaluated(checkpoint):
                interrupts.check()
                if self._task is None and not self._evaluate(checkpoint):
                    return
                if time.monotonic() >= deadline:
                    self._say(f"the last checkpoint was not evaluated within {seconds:g} s (evaluation.final_seconds)")
                    return
                self._look()
                time.sleep(0.02)
        except Interrupted:
            self._say("interrupted: the last checkpoint was not evaluated")

    def has_evaluated(self, checkpoint: Path) -> bool:
        """Whether the newest evaluation is of this one."""
        return self.last is not None and self.last["checkpoint"] == checkpoint.name

    def _evaluate(self, checkpoint: Path) -> bool:
        try:
            held = self._run.checkpoints.hold(checkpoint)
        except OSError as error:
            self._say(f"cannot keep {checkpoint} for its evaluation: {error}")
            return False
        self._task = {"path": str(held.resolve()), "checkpoint": checkpoint.name}
        self._heard_at = max(self._heard_at, time.monotonic())
        if self._process is not None:
            child.say_to(self._process, self._task)
        return True

    def _start(self) -> None:
        self._answers, answers_end = os.pipe()
        self._unread = b""
        job = {"config": self._config.to_yaml(), "life": self._lives, "answers": answers_end}
        try:
            self._process = child.start("pronk.evaluation.evaluator_process", job, self._log, [answers_end])
        except OSError as error:  # of a full disk or process table
            os.close(self._answers)
            return self._failed(str(error), at_fault=True)
        finally:
            os.close(answers_end)
        self._lives += 1
        self._heard_at = math.inf
        if self._task is not None:
            child.say_to(self._process, self._task)

    def _look(self) -> None:
        """Hear what it has to say; start it again where it is gone or hangs."""
        if self._process is None:
            if time.monotonic() >= self._start_at:
                self._start()
            return
        code = self._process.poll()  # before it is heard, so that no last word is missed
        failure = None
        for message in self._messages():
            self._heard_at = time.monotonic()
            failure = message.get("failure", failure)
            if "line" in message:
                self._record(message["line"])
        timeout = self._config.actors.timeout_seconds
        if failure is not None:
            self._failed(failure, at_fault=True)
        elif code is not None:
            self._failed(f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}", code > 0)
        elif self._task is not None and time.monotonic() - self._heard_at > timeout:
            print_to(self._log, "it hangs; here:")
            child.where_it_is(self._process, self._log)
            self._failed(f"no step for {timeout:g} s (actors.timeout_seconds)", at_fault=True)

    def _messages(self) -> list[dict[str, Any]]:
        *whole, self._unread = (self._unread + child.read_all(self._answers)).split(b"\n")
        return [json.loads(line) for line in whole]

    def _record(self, line: dict[str, Any]) -> None:
        """One evaluation: to every sink, and perhaps the best so far (of equals, the newest)."""
        best = line["mean"] >= self._best
        self._best = max(self._best, line["mean"]) if best else self._best
        line = {**line, "best": best}
        self.last = {name: plain(value) for name, value in line.items()}
        self._task, self._deaths, self._faults = None, 0, 0
        try:
            self._run.checkpoints.release(best)
        except OSError as error:
            self._say(f"cannot mark the best checkpoint: {error}")
        for sink in self._sinks:
            try:
                sink.evaluated(line)
            except OSError as error:
                self._say(f"cannot write an evaluation: {error}")

    def _failed(self, cause: str, at_fault: bool) -> None:
        """Start it again after a pause that grows; give up where it keeps failing by itself, and not by a kill."""
        self._bury()
        self._deaths, self._faults = self._deaths + 1, self._faults + at_fault
        brief = cause.splitlines()[-1]
        if self._faults >= self._config.actors.max_failures:
            self._on, self._task = False, None
            with contextlib.suppress(OSError):
                self._run.checkpoints.release()
            self._say(
                f"the evaluator failed {self._faults} times in a row ({brief}); the training goes on without it. "
                f"Its log: {self._log}"
            )
            return
        self._start_at = time.monotonic() + min(LAST_PAUSE, FIRST_PAUSE * 4 ** (self._deaths - 1))
        self._say(f"the evaluator failed ({brief}); it starts again. Its log: {self._log}")

    def _bury(self) -> None:
        if self._process is not None:
            child.end(self._process)
            os.close(self._answers)
            self._process = None


def print_to(log: Path, words: str) -> None:
    """A line in a process's log that is not its own."""
    with contextlib.suppress(OSError), open(log, "a", encoding="utf-8") as file:
        file.write(words + "\n")
