"""One thread: while the learner waits for unrolls, the actors play. Deterministic bit for bit."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator

from pronk.layout import UnrollLayout
from pronk.transport.base import WhileWaiting
from pronk.types import Parameters, Unroll


class LocalTransport:
    """Both ports in one object. `while_waiting` must advance an actor."""

    def __init__(self, layout: UnrollLayout) -> None:
        self._layout = layout
        self._free: list[Unroll] = []
        self._filled: deque[Unroll] = deque()
        self._parameters: Parameters | None = None
        self.room = 1  # nothing is played ahead
        self.while_waiting: WhileWaiting = lambda: None
        self.while_starving: WhileWaiting = lambda: None  # never called: `while_waiting` plays

    def parameters(self) -> Parameters:
        """See `ActorPort`."""
        assert self._parameters is not None, "the learner publishes before an actor plays"
        return self._parameters

    @contextlib.contextmanager
    def unroll(self) -> Iterator[Unroll]:
        """See `ActorPort`. Reuses one that the learner has freed."""
        unroll = self._free.pop() if self._free else self._layout.allocate()
        try:
            yield unroll
        except BaseException:
            self._free.append(unroll)
            raise
        self._filled.append(unroll)

    def publish(self, parameters: Parameters) -> None:
        """See `LearnerPort`."""
        self._parameters = Parameters(parameters.version, parameters.block.copy())

    @contextlib.contextmanager
    def unrolls(self, count: int) -> Iterator[list[Unroll]]:
        """See `LearnerPort`. Advances actors until there are enough."""
        while len(self._filled) < count:
            self.while_waiting()
        taken = [self._filled.popleft() for _ in range(count)]
        try:
            yield taken
        finally:
            self._free += taken

    @property
    def waiting(self) -> int:
        """See `LearnerPort`."""
        return len(self._filled)
