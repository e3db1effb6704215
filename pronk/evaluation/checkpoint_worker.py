"""A process beside training that plays checkpoints, one at a time: the learner's side of it.

    learner --saves--> checkpoint --task--> process: plays --result--> learner

The process has no state worth keeping: when it is killed it is restarted and given the same checkpoint. A second name
(a hard link) keeps the checkpoint from deletion meanwhile. If the process keeps failing, training continues without it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pronk.config import ResolvedConfig
from pronk.processes.messages import Alive, Message
from pronk.processes.restarts import RestartPolicy
from pronk.processes.supervisor import Child, ProcessFailed, Start, SupervisedProcess
from pronk.runs.checkpoint import Checkpoints, Held
from pronk.types import UserError

POLL_SECONDS = 0.1  # polling the process at every update would cost too much
START_SECONDS = 120.0  # at low priority, on a busy machine; then the usual timeout begins
GRACE_SECONDS = 2.0  # for an idle process to close its environments


class CheckpointWorker:
    """The process, and the task that it has now."""

    def __init__(
        self, name: str, program: str, held: Held, log: Path, config: ResolvedConfig, checkpoints: Checkpoints
    ) -> None:
        self._name, self._held, self._checkpoints = name, held, checkpoints
        self.on = True
        """Whether there are still tasks to give; false once the process keeps failing."""
        self.task: Message | None = None
        self._task_life = 0  # which life of the process was given the task
        self._done = 0
        self._task_at, self._poll_at = time.monotonic(), 0.0
        child = Child(
            name=f"the {name}",
            program=program,
            log=log,
            prepare=lambda life: Start({"config": config.to_yaml()}),
            # Kills are never the end: training does not depend on this process.
            policy=RestartPolicy(config.actors.max_failures, max_kills=None, steady_seconds=0.0, last_pause=60.0),
            progress=lambda: self._done,
            timeout_seconds=config.actors.timeout_seconds,
            silent_seconds=self._silent_seconds,
            silence="no step",
        )
        self._child = child
        self._process: SupervisedProcess | None = None

    def start(self, say: Callable[[str], None]) -> None:
        """Start the process. `say` gets a line about each restart, and the reason if it is given up."""
        self._say = say
        self._process = SupervisedProcess(self._child, say)
        for _ in self.results():
            pass

    def stop(self) -> None:
        """End the process; one that has nothing to do may close its environments first."""
        if self._process is not None:
            self._process.stop(time.monotonic() + GRACE_SECONDS * (self.task is None))
            self._release()

    def due(self) -> bool:
        """Return whether it is time to poll again. Called at every update."""
        now = time.monotonic()
        if not self.on or now < self._poll_at:
            return False
        self._poll_at = now + POLL_SECONDS
        return True

    def give(self, checkpoint: Path, task_for: Callable[[Path], Message]) -> bool:
        """Give the process a task, made by `task_for` from the path under which the checkpoint is kept.

        Returns False if the checkpoint could not be kept.
        """
        try:
            held = self._checkpoints.hold(checkpoint, self._held)
        except OSError as error:
            self._say(f"cannot keep {checkpoint} for the {self._name}: {error}")
            return False
        self.task, self._task_life = task_for(held.resolve()), 0
        self._send()
        return True

    def done(self) -> None:
        """Note that the result of the task was recorded: the process is free for the next."""
        self.task = None
        self._done += 1

    def results(self) -> Iterator[Message]:
        """Yield what the process reports. Restarts it if it died or hangs, and gives up if it keeps failing."""
        if self._process is None:
            return
        try:
            yield from (message for message in self._process.poll() if not isinstance(message, Alive))
        except (ProcessFailed, UserError) as error:
            self.on, self.task = False, None
            self._release()
            brief = error.brief if isinstance(error, ProcessFailed) else f"the {self._name} failed ({error})"
            self._say(f"{brief}; training continues without it. Its log: {self._child.log}")
        self._send()

    def _send(self) -> None:
        """Give the task to a process that does not have it yet."""
        process = self._process
        if self.task is not None and process and process.process is not None and self._task_life != process.lives:
            self._task_life, self._task_at = process.lives, time.monotonic()
            process.send(self.task)

    def _release(self) -> None:
        with contextlib.suppress(OSError):
            self._checkpoints.release(self._held)

    def _silent_seconds(self) -> float:
        """Return the seconds since the process last reported or got its task; 0 without a task.

        Starting may take long on a busy machine, but not for ever.
        """
        if self.task is None or self._process is None:
            return 0.0
        return min(self._process.silent_seconds(START_SECONDS), time.monotonic() - self._task_at)
