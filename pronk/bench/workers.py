"""Processes that measure when they are asked to, all at the same time."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pronk.config import ResolvedConfig
from pronk.processes.messages import MeasurePart, PartMeasured
from pronk.processes.restarts import NEVER
from pronk.processes.supervisor import Child, Start, SupervisedProcess, Supervisor

GRACE_SECONDS = 2.0  # for a process to close its environments
POLL_SECONDS = 0.005


def pause() -> None:
    time.sleep(POLL_SECONDS)


class Workers:
    """The processes. A failure of any of them is raised by whatever waits for them."""

    def __init__(self, children: Sequence[SupervisedProcess]) -> None:
        self._children = children

    def wait_until_ready(self) -> None:
        """Return when all processes have reported.

        Raises:
            ProcessFailed: one of them failed.
        """
        while not all(one.has_reported for one in self._children):
            pause()
            for one in self._children:
                one.poll()

    def rate(self, part: str, seconds: float, count: int | None = None, meanwhile: Callable[[], None] = pause) -> float:
        """Return the rate of a part, the mean of what the processes measure while all do the same.

        Args:
            part: what to measure.
            seconds: for about how long.
            count: only the first so many processes measure; the others are idle. None: all.
            meanwhile: called again and again until all have replied.

        Raises:
            ProcessFailed: one of the processes failed, also one that was not asked.
        """
        asked = self._children[:count]
        for one in asked:
            one.send(MeasurePart(part, seconds))
        rates: dict[int, float] = {}
        while len(rates) < len(asked):
            meanwhile()
            for number, one in enumerate(self._children):
                for answer in one.poll():
                    assert isinstance(answer, PartMeasured)
                    rates[number] = answer.rate
        return statistics.fmean(rates.values())


@contextlib.contextmanager
def started(
    name: str, program: str, jobs: Sequence[dict[str, Any]], folder: Path, say: Callable[[str], None]
) -> Iterator[Workers]:
    """Start a process for each job and wait until all are ready; leaving the block ends them.

    Args:
        name: of a process in messages, followed by its number.
        program: a module with `main(job, channel)` that reports `Alive`, then replies to `MeasurePart`.
        jobs: one for each process.
        folder: for their logs.
        say: gets warnings.

    Raises:
        ProcessFailed: one of them failed.
    """

    def child(number: int, job: dict[str, Any]) -> SupervisedProcess:
        log = folder / f"{name}-{number}.log"
        return SupervisedProcess(Child(f"{name} {number}", program, log, lambda life: Start(job), NEVER), say)

    children = [child(number, job) for number, job in enumerate(jobs)]
    supervisor = Supervisor(children, GRACE_SECONDS)
    try:
        supervisor.start()
        workers = Workers(children)
        workers.wait_until_ready()
        yield workers
    finally:
        supervisor.stop()


def part_workers(
    config: ResolvedConfig, count: int, folder: Path, say: Callable[[str], None], whole: bool = False
) -> contextlib.AbstractContextManager[Workers]:
    """Start processes that measure parts of training in steps per second; see `started`.

    `whole`: they measure whole actors and updates (`whole_parts.py`), not environment, inference and learner.
    """
    job = {"config": config.to_yaml(), "whole": whole}
    return started("bench", "pronk.bench.parts_process", [job] * count, folder, say)
