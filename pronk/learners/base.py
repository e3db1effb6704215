"""The interface between the training loop and a group of learners.

    learner 1   gradient --Contribution-->              --> all-reduce of one flat vector --> update
    learner 0   gradient   wait for all, merge, reply   --> (weighted by valid steps)     --> update
    learner 2   gradient --Contribution-->              -->                               --> update

A step of L learners equals one learner's step on all their batches side by side. No learner enters the all-reduce
before every gradient is ready. So a learner waits for others in Python, where it notices at once if one is gone.

The group forms again, from learner 0's weights and counters, whenever a learner other than 0 dies and whenever one
comes back. Between two updates every learner is at the same version, so nothing is learnt twice.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pronk.learners.rendezvous import Rendezvous
from pronk.metrics import Experience, Played
from pronk.processes.interrupts import Interrupted, Interrupts
from pronk.types import Array, Unroll

if TYPE_CHECKING:
    from torch import Tensor

    from pronk.learners.coordinator import Coordinator
    from pronk.learners.participant import Participant
    from pronk.processes.messages import Welcome

Waiting = Callable[[], contextlib.AbstractContextManager[None]]
"""Measures the time that a learner waits for others."""


Report = dict[str, float]


class BatchLike(Protocol):
    """What a group needs of a batch: the same columns as tensors and as NumPy arrays."""

    @property
    def tensors(self) -> Unroll: ...
    @property
    def arrays(self) -> Unroll: ...
    @property
    def fresh(self) -> Array: ...


class LearnerLike(Protocol):
    """What a group needs of its own learner. See `learner.py`."""

    version: int

    @property
    def gradients(self) -> Tensor: ...
    def step(
        self,
        batch: Unroll,
        learning_rate: float,
        meanwhile: Callable[[], None] = ...,
        combine: Callable[[Report], Report] = ...,
    ) -> Report: ...


@dataclass(frozen=True)
class Shared:
    """What has to be equal in all learners whenever the group forms."""

    tensors: list[Tensor]
    """Overwritten with learner 0's."""
    state: Callable[[], dict[str, Any]]
    """Returns learner 0's counters and the like, as plain data."""
    load: Callable[[dict[str, Any]], None]
    """Takes over what learner 0's `state` returned. Called in every learner, learner 0 too."""


class GroupEnded(Interrupted):
    """Another learner has ended the run, so this one ends, too. A failure has a message."""

    def __init__(self, outcome: str, message: str | None = None) -> None:
        super().__init__(message or outcome)
        self.outcome, self.message = outcome, message


class Update(NamedTuple):
    """One gradient step: what the learner reports, and what the batches of all learners held."""

    report: Report
    experience: Experience | Played


class Contribution(NamedTuple):
    """What a learner reports about its batch and gradient, or, merged, about those of all learners."""

    version: int  # of the weights that are about to be updated
    valid: int  # valid steps: the weight of a gradient that is a mean
    report: Report
    experience: Experience
    broken: tuple[int, ...] = ()  # ranks of the learners whose report is not finite

    @classmethod
    def of(cls, batch: Unroll, report: Report, version: int, fresh: Array) -> Contribution:
        """Return one learner's. `batch` holds NumPy arrays; `fresh` is [B] bool."""
        return cls(version, int(batch.valid.sum()), report, Experience.of(batch, version, fresh))

    @classmethod
    def merged(cls, by_rank: Mapping[int, Contribution], reduction: str) -> Contribution:
        """Return what one learner would report about all batches side by side, but for the norm of the gradient."""
        parts = list(by_rank.values())
        valid = sum(part.valid for part in parts)
        weights = [part.valid / valid if valid else 1 / len(parts) for part in parts]
        report = {}
        for name in parts[0].report:
            summed = reduction == "sum" and name.endswith("loss")
            values = [part.report[name] for part in parts]
            report[name] = sum(values) if summed else sum(map(float.__mul__, weights, values))
        broken = tuple(rank for rank, part in by_rank.items() if not part.is_finite)
        return cls(parts[0].version, valid, report, Experience.merged([part.experience for part in parts]), broken)

    @classmethod
    def from_plain(cls, fields: list[Any]) -> Contribution:
        """Return one that travelled as JSON, where every tuple became a list."""
        one = cls(*fields)
        experience = Experience(*one.experience)
        experience = experience._replace(
            columns=[(number, task, opens, ends) for number, task, opens, ends in experience.columns],
            episodes=[(number, task, value, length) for number, task, value, length in experience.episodes],
        )
        return one._replace(experience=experience, broken=tuple(one.broken))

    @property
    def is_finite(self) -> bool:
        """Whether every value of the report is finite."""
        return all(map(math.isfinite, self.report.values()))


def played_by_present_weights(learner: LearnerLike, batch: BatchLike) -> Array:
    """Return which fresh columns were played by the weights as they are now, [B] bool."""
    return batch.fresh & (batch.arrays.version == learner.version)


class LearnerGroup(Protocol):
    """All that a training loop sees of the other learners."""

    rank: int
    count: int
    broken: tuple[int, ...]
    """Ranks of the learners whose loss or gradient was not finite in the last step."""

    def begin(self, shared: Shared, interrupts: Interrupts, waiting: Waiting) -> None:
        """Wait for all learners, and take over learner 0's `shared`."""
        ...

    def check(self) -> None:
        """Form the group again if a learner is gone or has come; raise `GroupEnded` if one has ended the run.

        Cheap; called while this learner waits for its actors.
        """
        ...

    def step(
        self, learner: LearnerLike, batch: BatchLike, learning_rate: float, meanwhile: Callable[[], None]
    ) -> Update | None:
        """Make one update from the batches of all learners.

        Returns None if the group had to form again and learner 0 had already made this update: its result came with
        learner 0's weights.

        Raises:
            NonFinite: a loss or gradient of any learner is not finite; nothing was changed.
            GroupEnded: a learner has ended the run.
        """
        ...

    def observe(self, learner: LearnerLike, batch: BatchLike) -> Experience | None:
        """Return what all learners' batches hold that was played by the present weights. Nothing is learnt.

        Returns None if the group formed again: the batch is dropped.

        Raises:
            GroupEnded: a learner has ended the run.
        """
        ...

    def decide(self, decision: Callable[[], bool]) -> bool | None:
        """Return what `decision` returns to learner 0, in every learner. None if the group formed again meanwhile.

        Raises:
            GroupEnded: a learner has ended the run.
        """
        ...

    def leave(self, outcome: str, message: str | None = None) -> None:
        """End this learner; the others get `GroupEnded`. Never raises; only the first call counts."""
        ...


class SingleLearner:
    """A group of one."""

    rank, count = 0, 1
    broken: tuple[int, ...] = ()

    def announce(self, config: str, run: str, logs: Path) -> None:
        """Do nothing: there is no other learner."""

    def begin(self, shared: Shared, interrupts: Interrupts, waiting: Waiting) -> None:
        """See `LearnerGroup`."""

    def check(self) -> None:
        """See `LearnerGroup`."""

    def step(
        self, learner: LearnerLike, batch: BatchLike, learning_rate: float, meanwhile: Callable[[], None]
    ) -> Update:
        """See `LearnerGroup`."""
        played = Played.of(batch.arrays, learner.version, batch.fresh)
        return Update(learner.step(batch.tensors, learning_rate, meanwhile), played)

    def observe(self, learner: LearnerLike, batch: BatchLike) -> Experience:
        """See `LearnerGroup`."""
        return Experience.of(batch.arrays, learner.version, played_by_present_weights(learner, batch))

    def decide(self, decision: Callable[[], bool]) -> bool:
        """See `LearnerGroup`."""
        return decision()

    def leave(self, outcome: str, message: str | None = None) -> None:
        """See `LearnerGroup`."""


@contextlib.contextmanager
def coordinate(
    rendezvous: Rendezvous, reduction: str, say: Callable[[str], None], timeout_seconds: float = 120.0
) -> Iterator[SingleLearner | Coordinator]:
    """Form the group as learner 0, the only one or of several.

    Args:
        rendezvous: of this learner.
        reduction: the loss's.
        say: shows the user a line.
        timeout_seconds: a learner that sends nothing for so long, while others wait for it, counts as gone.
    """
    if rendezvous.count == 1:
        yield SingleLearner()
        return
    from pronk.learners.coordinator import Coordinator

    with Coordinator(rendezvous, reduction, say, timeout_seconds) as coordinator:
        yield coordinator


@contextlib.contextmanager
def participate(rendezvous: Rendezvous, say: Callable[[str], None]) -> Iterator[tuple[Participant, Welcome]]:
    """Join the group as a learner other than 0; also yields what learner 0 announced."""
    from pronk.learners.participant import Participant

    with Participant(rendezvous, say) as participant:
        yield participant, participant.welcome()
