"""Everything in one thread: the learner's wait *is* the actors' playing. Deterministic bit for bit."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator

from pronk.layout import UnrollLayout
from pronk.transport.base import WhileWaiting
from pronk.types import Parameters, Unroll


class LocalTransport:
    """Both ports in one object. `while_waiting` must make an actor advance."""

    def __init__(self, layout: UnrollLayout) -> None:
        self._layout = layout
        self._free: list[Unroll] = []
        self._filled: deque[Unroll] = deque()
        self._parameters: Parameters | None = None
        self.room = 1  # nothing is played ahead
        self.while_waiting: WhileWaiting = lambda: None

    def parameters(self) -> Parameters:
        """The newest."""
        assert self._parameters is not None, "the learner publishes before an actor plays"
        return self._parameters

    @contextlib.contextmanager
    def unroll(self) -> Iterator[Unroll]:
        """Recycled where one is free; there are never more than the learner asked for."""
        unroll = self._free.pop() if self._free else self._layout.allocate()
        try:
            yield unroll
        except BaseException:
            self._free.append(unroll)
            raise
        self._filled.append(unroll)

    def publish(self, parameters: Parameters) -> None:
        """Keep a copy."""
        self._parameters = Parameters(parameters.version, parameters.block.copy())

    @contextlib.contextmanager
    def unrolls(self, count: int) -> Iterator[list[Unroll]]:
        """Let the actors play until there are enough."""
        while len(self._filled) < count:
            self.while_waiting()
        taken = [self._filled.popleft() for _ in range(count)]
        try:
            yield taken
        finally:
            self._free += taken

    @property
    def waiting(self) -> int:
        """Filled and not taken."""
        return len(self._filled)
