"""Further learners as processes of this machine, started by learner 0. None is restarted: the run ends with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from pronk.learners.rendezvous import Rendezvous
from pronk.processes.restarts import NEVER
from pronk.processes.supervisor import Child, Start, SupervisedProcess, Supervisor

GRACE_SECONDS = 5.0  # for a learner to end its actors, which have a grace of their own


class LocalLearners:
    """Learners 1 to count - 1. A `with` block: leaving it ends them."""

    def __init__(self, rendezvous: Rendezvous, logs: Path) -> None:
        """`rendezvous` is learner 0's, with the address at which it listens."""
        self._rendezvous, self._logs = rendezvous, logs
        self._processes = {
            rank: SupervisedProcess(self._child(rank), lambda line: None) for rank in range(1, rendezvous.count)
        }
        self._supervisor = Supervisor(list(self._processes.values()), GRACE_SECONDS)

    def __enter__(self) -> LocalLearners:
        self._logs.mkdir(parents=True, exist_ok=True)
        try:
            self._supervisor.start()
        except BaseException:
            self._supervisor.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._supervisor.stop()

    def watch(self, ranks: Sequence[int]) -> None:
        """Raise the cause if one of these learners has ended."""
        for rank in ranks:
            self._processes[rank].poll()

    def how_it_ended(self, rank: int) -> str:
        """Return how a learner ended, and where its log is."""
        process = self._processes[rank]
        return f"{process.how_it_ended()}; its log: {process.spec.log}"

    def _child(self, rank: int) -> Child:
        return Child(
            name=f"learner {rank}",
            program="pronk.learners.learner_process",
            log=self._logs / f"learner-{rank:03d}.log",
            prepare=partial(self._prepare, rank),
            policy=NEVER,
            keeps_secrets=True,  # its own gateway asks for the same token
        )

    def _prepare(self, rank: int, life: int) -> Start:
        return Start({"rendezvous": asdict(replace(self._rendezvous, rank=rank, rank_here=rank))})
