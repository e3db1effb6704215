"""What learner 0 and the others share: how they form a group, combine their gradients, wait and leave.

    form        Ready (every other learner) --> Begin (learner 0) --> connect --> learner 0's weights and counters
    update      Contributed --> Contributed (merged) --> all-reduce --> the same step everywhere
    form again  a learner is gone or has come: Regroup (learner 0) --> Ready --> ...

If a learner is lost during an update, learner 0 decides. If it has completed the update, all others take over its
weights. If not, those that have completed it are set back to learner 0's weights, and all that are left make it again.
"""

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
    Shared,
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
MOST_FORMATIONS = 10  # in a row without an update between them; then the network counts as broken


class Regrouping(Exception):  # noqa: N818 - not an error: the way out of an update that has to be made again
    """The group has to form again. Never leaves this package."""


class DistributedGroup:
    """One of several learners. A `with` block: leaving it closes all connections."""

    def __init__(self, rendezvous: Rendezvous, store: Any) -> None:
        self.rank, self.count = rendezvous.rank, rendezvous.count
        self.broken: tuple[int, ...] = ()
        self.reduction = "mean"  # of the loss
        self._store = store
        self._stack, self._connection = contextlib.ExitStack(), contextlib.ExitStack()
        self._collective: Collective | None = None
        self._shared: Shared | None = None
        self._interrupts = Interrupts()
        self._waiting: Waiting = contextlib.nullcontext
        self._left = False
        self._formation = -1  # the number of the present one
        self._in_a_row = 0  # formations since the last update

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._connection.close()
        self._stack.close()

    def begin(self, shared: Shared, interrupts: Interrupts, waiting: Waiting) -> None:
        """See `LearnerGroup`."""
        self._shared, self._interrupts, self._waiting = shared, interrupts, waiting
        self._form()

    def check(self) -> None:
        """See `LearnerGroup`."""
        if self._left or self._shared is None:
            return
        try:
            self._look()
        except Regrouping:
            self._form()

    def leave(self, outcome: str, message: str | None = None) -> None:
        """See `LearnerGroup`."""
        if not self._left:
            self._left = True
            self._send_leaving(Leaving(outcome, message))

    def step(
        self, learner: LearnerLike, batch: BatchLike, learning_rate: float, meanwhile: Callable[[], None]
    ) -> Update | None:
        """See `LearnerGroup`."""
        while True:
            version = learner.version
            try:
                return self._step_once(learner, batch, learning_rate, meanwhile)
            except Regrouping:
                self._form()
                if learner.version > version:  # learner 0 had completed the update, and this one took it over
                    return None

    def _step_once(
        self, learner: LearnerLike, batch: BatchLike, learning_rate: float, meanwhile: Callable[[], None]
    ) -> Update:
        merged: list[Contribution] = []

        def combine(report: Report) -> Report:
            mine = Contribution.of(batch.arrays, report, learner.version, batch.fresh)
            with self._waiting():
                merged.append(self.exchange(mine))
            self.broken = merged[0].broken
            return self.add_gradients(learner.gradients, mine, merged[0])

        report = learner.step(batch.tensors, learning_rate, meanwhile, combine)
        self._in_a_row = 0
        return Update(report, merged[0].experience)

    def observe(self, learner: LearnerLike, batch: BatchLike) -> Experience | None:
        """See `LearnerGroup`."""
        fresh = played_by_present_weights(learner, batch)
        try:
            with self._waiting():
                return self.exchange(Contribution.of(batch.arrays, {}, learner.version, fresh)).experience
        except Regrouping:
            self._form()
            return None

    def decide(self, decision: Callable[[], bool]) -> bool | None:
        """See `LearnerGroup`."""
        formation = self._formation
        try:
            value = self._decided(decision)
        except Regrouping:
            self._form()
            return None
        return value if self._formation == formation else None

    def add_gradients(self, gradients: Tensor, mine: Contribution, merged: Contribution) -> Report:
        """Overwrite the gradients with those of all batches side by side; return the report with their norm.

        If any is not finite none is added: the update refuses them, in every learner. Raises `Regrouping`.
        """
        if not merged.is_finite:
            return merged.report
        assert self._collective is not None, "begun"
        weight = mine.valid / merged.valid if self.reduction == "mean" and merged.valid else 1.0
        try:
            norm = self._collective.add_up(gradients, weight)
        except RuntimeError as error:
            raise Regrouping(first_line(error)) from None
        return merged.report | {"gradient_norm": norm}

    def _form(self) -> None:
        """Connect the learners that there are, and take over learner 0's state."""
        assert self._shared is not None, "begun"
        broken = ""
        while True:
            self._in_a_row += 1
            if self._in_a_row > MOST_FORMATIONS:
                raise GroupEnded("failed", f"the learners cannot connect, tried {MOST_FORMATIONS} times: {broken}")
            self._connection.close()  # makes learners that wait inside the all-reduce leave it, too
            try:
                begin, own_host = self._agree(socket.gethostname(), str(self._shared.tensors[0].device))
                self._connect(begin, own_host, self._shared.tensors)
            except Regrouping as again:
                broken = str(again)
                continue
            self._formation = begin.formation
            self._shared.load(begin.state)
            return

    def _connect(self, begin: Begin, own_host: str, tensors: list[Tensor]) -> None:
        """Set up the all-reduce, and copy learner 0's tensors to all."""
        position = begin.ranks.index(self.rank)
        arguments = (f"{KEY}-{begin.formation}", position, len(begin.ranks), own_host, tensors[0].device)
        try:
            self._collective = self._connection.enter_context(collective(begin.backend, self._store, *arguments))
            with torch.no_grad():
                self._collective.copy(tensors)
        except RuntimeError as error:
            raise Regrouping(first_line(error)) from None

    # What differs between learner 0 and the others.

    def exchange(self, mine: Contribution) -> Contribution:
        """Wait until every gradient is ready; return all contributions, merged. Raises `GroupEnded`, `Regrouping`."""
        raise NotImplementedError

    def _decided(self, decision: Callable[[], bool]) -> bool:
        """Return learner 0's decision. Raises as `exchange`."""
        raise NotImplementedError

    def _agree(self, host: str, device: str) -> tuple[Begin, str]:
        """Wait until all learners are ready. Return how they begin, and the address at which others reach this one."""
        raise NotImplementedError

    def _look(self) -> None:
        """Handle what has come, without waiting. Raises as `exchange`."""
        raise NotImplementedError

    def _send_leaving(self, leaving: Leaving) -> None:
        raise NotImplementedError


def first_line(error: Exception) -> str:
    """Return the first line of an error of torch's, which may have many."""
    return (str(error).splitlines() or [type(error).__name__])[0]


class LongWait:
    """Measures a wait for other learners: when to mention it, and when to give up."""

    def __init__(self, limit: float = float("inf"), first: float = MENTION_SECONDS) -> None:
        self._began, self._next, self._limit = time.monotonic(), first, limit

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
