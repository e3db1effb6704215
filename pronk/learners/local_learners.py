"""Further learners as processes of this machine, started by learner 0, and restarted when they are killed or hang."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from pronk.learners.rendezvous import Rendezvous
from pronk.processes.child import is_stopped
from pronk.processes.restarts import RestartPolicy
from pronk.processes.supervisor import Child, Start, SupervisedProcess, Supervisor

GRACE_SECONDS = 5.0  # for a learner to end its actors, which have a grace of their own
POLICY = RestartPolicy(max_failures=3, first_pause=0.5)


class LocalLearners:
    """Learners 1 to count - 1. A `with` block: leaving it ends them."""

    def __init__(
        self,
        rendezvous: Rendezvous,
        logs: Path,
        silent_seconds: Callable[[int], float],
        updates: Callable[[int], int],
        timeout_seconds: float,
    ) -> None:
        """Prepare to start them.

        Args:
            rendezvous: learner 0's, with the address at which it listens.
            logs: folder for their logs.
            silent_seconds: how long the learner of a rank has sent nothing.
            updates: how many updates it has taken part in.
            timeout_seconds: of silence, after which it is restarted.
        """
        self._rendezvous, self._logs, self._timeout = rendezvous, logs, timeout_seconds
        self._silent_seconds, self._updates = silent_seconds, updates
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

    def watch(self) -> None:
        """Restart those that have ended or hang. Raises the cause when a restart would not help."""
        self._supervisor.watch()

    def how_it_ended(self, rank: int) -> str:
        """Return how a learner ended, and where its log is."""
        process = self._processes[rank]
        return f"{process.how_it_ended()}; its log: {process.spec.log}"

    def is_stopped(self, rank: int) -> bool:
        """Return whether this learner is stopped (SIGSTOP)."""
        process = self._processes[rank].process
        return process is not None and is_stopped(process)

    def _child(self, rank: int) -> Child:
        return Child(
            name=f"learner {rank}",
            program="pronk.learners.learner_process",
            log=self._logs / f"learner-{rank:03d}.log",
            prepare=partial(self._prepare, rank),
            policy=POLICY,
            progress=partial(self._updates, rank),
            timeout_seconds=self._timeout,
            silent_seconds=partial(self._silent_seconds, rank),
            keeps_secrets=True,  # its own gateway asks for the same token
        )

    def _prepare(self, rank: int, life: int) -> Start:
        return Start({"rendezvous": asdict(replace(self._rendezvous, rank=rank, rank_here=rank))})
