"""What learners that act as one look like to each of them.

    learner 1   gradient --share-->            --> all gradients added up, weighed by valid steps --> update
    learner 0   gradient   meet: merge, "go"   --> (one all-reduce of one flat vector)            --> update
    learner 2   gradient --share-->            -->                                                --> update

A step of L learners equals one learner's step on all their batches side by side. Nobody touches the gradients of others
before everybody is there, so a learner that waits does so in Python: it hears at once who leaves, and is never stuck.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pronk.learners.place import Place
from pronk.metrics import Experience
from pronk.processes.interrupts import Interrupted, Interrupts
from pronk.types import Array, Unroll

if TYPE_CHECKING:
    from torch import Tensor

    from pronk.learners.follower import Follower
    from pronk.learners.leader import Leader


class Left(Interrupted):
    """Another learner has come to its end, and so does this one. A failure has a message."""

    def __init__(self, outcome: str, message: str | None = None) -> None:
        super().__init__(message or outcome)
        self.outcome, self.message = outcome, message


class Share(NamedTuple):
    """What a learner tells of its batch and its gradient; merged, it tells of everybody's."""

    version: int  # that is about to be updated
    valid: int  # steps that count: a gradient that is a mean weighs so much
    report: dict[str, float]
    experience: Experience
    broken: tuple[int, ...] = ()  # learners whose report is not all numbers

    @classmethod
    def of(cls, batch: Unroll, report: dict[str, float], version: int, fresh: Array) -> Share:
        """One learner's."""
        return cls(version, int(batch.valid.sum()), report, Experience.of(batch, version, fresh))

    @classmethod
    def merged(cls, shares: Sequence[Share], reduction: str) -> Share:
        """As one learner would tell it of all batches side by side; the norm is known only when gradients are added."""
        valid = sum(share.valid for share in shares)
        weights = [share.valid / valid if valid else 1 / len(shares) for share in shares]
        report = {}
        for name in shares[0].report:
            summed = reduction == "sum" and name.endswith("loss")
            values = [share.report[name] for share in shares]
            report[name] = sum(values) if summed else sum(map(float.__mul__, weights, values))
        broken = tuple(rank for rank, share in enumerate(shares) if not share.is_finite)
        return cls(shares[0].version, valid, report, Experience.merged([s.experience for s in shares]), broken)

    @property
    def is_finite(self) -> bool:
        """Whether the whole report is numbers."""
        return all(map(math.isfinite, self.report.values()))


class Group(Protocol):
    """All that a training loop sees of the other learners."""

    rank: int
    count: int

    def begin(self, state: dict[str, Any], tensors: list[Tensor], interrupts: Interrupts) -> dict[str, Any]:
        """Wait for everybody, and begin as learner 0 does: gives its `state` and overwrites `tensors` with its own."""
        ...

    def look(self) -> None:
        """Raise `Left` if somebody has left. Cheap; called while this learner waits for its actors."""
        ...

    def meet(self, share: Share, interrupts: Interrupts) -> Share:
        """Wait until everybody has a gradient; gives everybody's share, merged. Raises `Left` if somebody left."""
        ...

    def add_up(self, gradients: Tensor, mine: Share, whole: Share) -> dict[str, float]:
        """Make the gradients those of all batches side by side; gives the report with their norm."""
        ...

    def leave(self, outcome: str, message: str | None = None) -> None:
        """This learner ends; the others get `Left`. Never raises, and more than once is as good as once."""
        ...


@contextlib.contextmanager
def leading(place: Place, reduction: str, say: Callable[[str], None]) -> Iterator[Solo | Leader]:
    """Be learner 0, of one or of many. `reduction` is the loss's."""
    if place.count == 1:
        yield Solo()
        return
    from pronk.learners.leader import Leader

    with Leader(place, reduction, say) as leader:
        yield leader


@contextlib.contextmanager
def following(place: Place, say: Callable[[str], None]) -> Iterator[tuple[Follower, dict[str, Any]]]:
    """Be another learner than 0. Gives learner 0's word of welcome too."""
    from pronk.learners.follower import Follower

    with Follower(place, say) as follower:
        yield follower, follower.welcome()


class Solo:
    """One learner: everything is as it is, and nothing costs anything."""

    rank, count = 0, 1

    def invite(self, welcome: dict[str, Any], logs: Path) -> None:
        """Nobody comes."""

    def begin(self, state: dict[str, Any], tensors: list[Tensor], interrupts: Interrupts) -> dict[str, Any]:
        """As it is."""
        return state

    def look(self) -> None:
        """Nobody can leave."""

    def meet(self, share: Share, interrupts: Interrupts) -> Share:
        """Nobody else is waited for."""
        return share

    def add_up(self, gradients: Tensor, mine: Share, whole: Share) -> dict[str, float]:
        """There is nothing to add."""
        return mine.report

    def leave(self, outcome: str, message: str | None = None) -> None:
        """Nobody minds."""
