"""Four methods and one exception are the whole distributed system. Unrolls go up, parameters come down."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from pronk.types import Parameters, Unroll


class Closed(Exception):  # noqa: N818 - not an error: how everything stops
    """The other side is gone."""


class ActorPort(Protocol):
    """All that an actor sees of the world."""

    def parameters(self) -> Parameters:
        """The newest."""
        ...

    def unroll(self) -> AbstractContextManager[Unroll]:
        """An empty unroll to fill in place, when one is free; leaving the block sends it (unless it raised)."""
        ...


class LearnerPort(Protocol):
    """All that the learner sees of the actors."""

    def publish(self, parameters: Parameters) -> None:
        """Hand newer parameters to every actor. The block is copied."""
        ...

    def unrolls(self, count: int) -> AbstractContextManager[list[Unroll]]:
        """The next unrolls, oldest first, when so many are there; leaving the block frees them."""
        ...

    @property
    def waiting(self) -> int:
        """Unrolls that are filled and not yet taken: who waits for whom."""
        ...

    room: int
    """Unrolls that could be: the slots of all who play."""


WhileWaiting = Callable[[], None]
"""Called again and again while the learner waits for unrolls: lets the one thread watch its actors, or be one."""
