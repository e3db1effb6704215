"""Numbers of slots or mailboxes that are free, for the coroutines of one loop to take and give back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable


class FreeNumbers:
    """Last in, first out, so that as little memory as possible is touched. Who waits is served in order."""

    def __init__(self, numbers: Iterable[int]) -> None:
        """The last of `numbers` is taken first."""
        self._free = list(numbers)
        self._waiting: deque[asyncio.Future[int]] = deque()

    async def take(self) -> int:
        """Wait for a free number, and take it."""
        if self._free:
            return self._free.pop()
        waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():  # a number was assigned just before: it must not be lost
                self.give_back(waiter.result())
            raise

    def give_back(self, number: int) -> None:
        """Free a number, or give it to the coroutine that has waited longest."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(number)
                return
        self._free.append(number)
