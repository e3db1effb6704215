"""The ports between actors and learner: four methods and one exception. Unrolls go up, parameters come down."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from pronk.types import Parameters, Unroll

WhileWaiting = Callable[[], None]
"""Called repeatedly while the learner waits for unrolls, to watch its actors or, in one process, to advance one."""


class Closed(Exception):  # noqa: N818 - not an error: how everything stops
    """The other side is gone."""


class ParameterReader(Protocol):
    """What a process uses that plays but does not train, such as an evaluator."""

    def parameters(self) -> Parameters:
        """Return the newest parameters. Raises `Closed`."""
        ...


class ActorPort(ParameterReader, Protocol):
    """All that an actor sees of the learner."""

    def unroll(self) -> AbstractContextManager[Unroll]:
        """Wait for a free unroll to fill in place. Leaving the block sends it, unless it raised. Raises `Closed`."""
        ...


class LearnerPort(Protocol):
    """All that the learner sees of the actors."""

    def publish(self, parameters: Parameters) -> None:
        """Make newer parameters available to every actor. The block is copied."""
        ...

    def unrolls(self, count: int) -> AbstractContextManager[list[Unroll]]:
        """Wait for the next `count` unrolls, oldest first. Leaving the block frees them."""
        ...

    @property
    def waiting(self) -> int:
        """Unrolls that are filled and not yet taken. Near `room`: actors wait; near 0: the learner waits."""
        ...

    while_starving: WhileWaiting
    """Called again and again when `unrolls` has waited for longer than a second."""
    room: int
    """Slots of all actors that play: the most that `waiting` can be."""
