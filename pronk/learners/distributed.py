"""What learner 0 and the others share: how they begin, combine their gradients, wait for one another and leave."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pronk.learners.base import (
    BatchLike,
    Contribution,
    GroupEnded,
    LearnerLike,
    Report,
    Update,
    Waiting,
    played_by_present_weights,
)
from pronk.learners.collective import Collective, collective
from pronk.learners.rendezvous import Rendezvous
from pronk.metrics import Experience
from pronk.processes.interrupts import Interrupts
from pronk.processes.messages import Begin, Leaving

KEY = "pronk"  # under which learner 0 leaves the port and the token of its channel in the store
POLL_SECONDS = 0.05  # how often a learner that waits for others checks for interrupts
MENTION_SECONDS = 10.0  # a longer wait is mentioned, then again whenever it has doubled
JOIN_SECONDS = 900.0  # for all learners to be started
EXPLAIN_SECONDS = 3.0  # after a failed all-reduce, to find out which learner is gone


class DistributedGroup:
    """One of several learners. A `with` block: leaving it closes all connections."""

    def __init__(self, rendezvous: Rendezvous, store: Any) -> None:
        self.rank, self.count = rendezvous.rank, rendezvous.count
        self.broken: tuple[int, ...] = ()
        self.reduction = "mean"  # of the loss
        self._store = store
        self._stack = contextlib.ExitStack()
        self._collective: Collective | None = None
        self._interrupts = Interrupts()
        self._waiting: Waiting = contextlib.nullcontext
        self._left = False

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._stack.close()

    def begin(
        self, state: dict[str, Any], tensors: list[Tensor], interrupts: Interrupts, waiting: Waiting
    ) -> dict[str, Any]:
        """See `LearnerGroup`."""
        self._interrupts, self._waiting = interrupts, waiting
        begin, own_host = self._agree(state, socket.gethostname(), str(tensors[0].device))
        self._connect(begin.backend, own_host, tensors)
        return begin.state

    def check(self) -> None:
        """See `LearnerGroup`."""
        if not self._left:
            self._receive(0.0)

    def leave(self, outcome: str, message: str | None = None) -> None:
        """See `LearnerGroup`."""
        if not self._left:
            self._left = True
            self._send_leaving(Leaving(outcome, message))

    def step(
        self, learner: LearnerLike, batch: BatchLike, learning_rate: float, meanwhile: Callable[[], None]
    ) -> Update:
        """See `LearnerGroup`."""
        merged: list[Contribution] = []

        def combine(report: Report) -> Report:
            mine = Contribution.of(batch.arrays, report, learner.version, batch.fresh)
            with self._waiting():
                merged.append(self.exchange(mine))
            self.broken = merged[0].broken
            return self.add_gradients(learner.gradients, mine, merged[0])

        report = learner.step(batch.tensors, learning_rate, meanwhile, combine)
        return Update(report, merged[0].experience)

    def observe(self, learner: LearnerLike, batch: BatchLike) -> Experience:
        """See `LearnerGroup`."""
        fresh = played_by_present_weights(learner, batch)
        with self._waiting():
            return self.exchange(Contribution.of(batch.arrays, {}, learner.version, fresh)).experience

    def add_gradients(self, gradients: Tensor, mine: Contribution, merged: Contribution) -> Report:
        """Overwrite the gradients with those of all batches side by side; return the report with their norm.

        If any is not finite none is added: the update refuses them, in every learner.
        """
        if not merged.is_finite:
            return merged.report
        assert self._collective is not None, "begun"
        weight = mine.valid / merged.valid if self.reduction == "mean" and merged.valid else 1.0
        try:
            norm = self._collective.add_up(gradients, weight)
        except RuntimeError as error:
            raise self._explain(error) from None
        return merged.report | {"gradient_norm": norm}

    def _connect(self, backend: str, own_host: str, tensors: list[Tensor]) -> None:
        """Set up the all-reduce, and copy learner 0's tensors to all."""
        arguments = (backend, self._store, self.rank, self.count, own_host, tensors[0].device)
        try:
            self._collective = self._stack.enter_context(collective(*arguments))
            with torch.no_grad():
                self._collective.copy(tensors)
        except RuntimeError as error:
            raise self._explain(error) from None

    def _explain(self, error: RuntimeError) -> GroupEnded:
        """Return which learner is gone, after an all-reduce failed. That may be known only a moment later."""
        deadline = time.monotonic() + EXPLAIN_SECONDS
        while time.monotonic() < deadline:
            if end := self._find_lost():
                return end
            time.sleep(POLL_SECONDS)
        return GroupEnded("failed", f"the learners lost their connection: {first_line(error)}")

    # What differs between learner 0 and the others.

    def exchange(self, mine: Contribution) -> Contribution:
        """Wait until every gradient is ready; return all contributions, merged. Raises `GroupEnded`."""
        raise NotImplementedError

    def _agree(self, state: dict[str, Any], host: str, device: str) -> tuple[Begin, str]:
        """Wait until all learners are ready. Return how they begin, and the address at which others reach this one."""
        raise NotImplementedError

    def _receive(self, seconds: float) -> None:
        """Handle what has come; wait up to `seconds` for it. Raises `GroupEnded` when a learner leaves or is gone."""
        raise NotImplementedError

    def _send_leaving(self, leaving: Leaving) -> None:
        raise NotImplementedError

    def _find_lost(self) -> GroupEnded | None:
        """Return why the group has ended, if that is known."""
        raise NotImplementedError


def first_line(error: Exception) -> str:
    """Return the first line of an error of torch's, which may have many."""
    return (str(error).splitlines() or [type(error).__name__])[0]


class LongWait:
    """Measures a wait for other learners: when to mention it, and when to give up."""

    def __init__(self, limit: float = float("inf")) -> None:
        self._began, self._next, self._limit = time.monotonic(), MENTION_SECONDS, limit

    @property
    def is_over(self) -> bool:
        """Whether it is time to give up."""
        return time.monotonic() - self._began > self._limit

    def mention(self) -> str | None:
        """Return ` for 10 s` when it is time to mention the wait, else None."""
        waited = time.monotonic() - self._began
        if waited < self._next:
            return None
        self._next *= 2
        return f" for {waited:.0f} s"
