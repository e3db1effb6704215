"""The processes that measure parts, one for each core, all at the same time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pronk.config import ResolvedConfig
from pronk.processes.messages import MeasurePart, PartMeasured
from pronk.processes.restarts import NEVER
from pronk.processes.supervisor import Child, Start, SupervisedProcess, Supervisor

GRACE_SECONDS = 2.0  # for a process to close its environments
POLL_SECONDS = 0.01


class Workers:
    """As many processes as there are cores."""

    def __init__(self, children: list[SupervisedProcess]) -> None:
        self._children = children

    def rate(self, part: str, seconds: float, count: int | None = None) -> float:
        """Return the steps per second of a part on one core while all cores do the same.

        With `count`, only so many cores do; the others are idle.
        """
        asked = self._children[:count]
        for one in asked:
            one.send(MeasurePart(part, seconds))
        rates: dict[int, float] = {}
        while len(rates) < len(asked):
            time.sleep(POLL_SECONDS)
            for number, one in enumerate(asked):
                for answer in one.poll():
                    assert isinstance(answer, PartMeasured)
                    rates[number] = answer.rate
        return sum(rates.values()) / len(rates)


@contextlib.contextmanager
def workers(
    config: ResolvedConfig, count: int, folder: Path, say: Callable[[str], None], whole: bool = False
) -> Iterator[Workers]:
    """Start the processes and wait until all are ready; leaving the block ends them.

    `whole`: they measure whole actors and updates (`whole_parts.py`), not environment, inference and learner.

    Raises:
        ProcessFailed: one of them failed.
    """
    job = {"config": config.to_yaml(), "whole": whole}
    children = [
        SupervisedProcess(
            Child(
                name=f"bench {number}",
                program="pronk.bench.parts_process",
                log=folder / f"bench-{number}.log",
                prepare=lambda life: Start(job),
                policy=NEVER,
            ),
            say,
        )
        for number in range(count)
    ]
    supervisor = Supervisor(children, GRACE_SECONDS)
    try:
        supervisor.start()
        while not all(one.has_reported for one in children):
            time.sleep(POLL_SECONDS)
            for one in children:
                one.poll()
        yield Workers(children)
    finally:
        supervisor.stop()
