"""Limits how far ahead actors play: just far enough to keep the learner busy.

When the learner makes many updates from each unroll, it is slower than its actors. An actor that plays its next unroll
as soon as it can would play it with parameters that are a hundred updates old when it is learnt from. So the learner
gives a slot back to its actor as late as it can afford:

    learner   | updates from unroll 1               | updates from unroll 2
    actor                           | plays unroll 2|
                                    ^ lead: the slot is given back so many updates before the next unroll is needed

If the learner had to wait for an unroll the lead grows, else it shrinks. Where actors are the slower side, it grows
until they never wait. It starts at its maximum and is halved with each unroll until the learner waits for the first
time: a run of a slow learner may have only fifty unrolls, and those played far ahead teach little.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

GROWTH, SHRINKAGE = 1.25, 0.95  # of the lead, per unroll: the learner waits briefly for about one unroll in five
FIRST_SHRINKAGE = 0.5  # until it has waited


class Pacer:
    """Holds slots that were learnt from until their actors should play again."""

    def __init__(self, updates: int, room: Callable[[], int]) -> None:
        """`updates` are made from the unrolls taken at once; `room` returns how many such sets all slots can hold."""
        self._updates, self._room = updates, room
        self._lead: float | None = None  # updates; None: nothing was taken yet
        self._shrinkage = FIRST_SHRINKAGE
        self._held: deque[Callable[[], None]] = deque()

    def taken(self, release: Callable[[], None], waited: bool) -> None:
        """Hold the unrolls just taken. `release` gives them back; `waited` says whether the learner had to wait."""
        longest = float(self._updates * self._room())
        if self._lead is None:
            lead = longest
        elif waited:
            lead, self._shrinkage = self._lead * GROWTH, SHRINKAGE
        else:
            lead = self._lead * self._shrinkage
        self._lead = min(longest, max(1.0, lead))
        self._held.append(release)

    def give_all_back(self) -> None:
        """Give all slots back. Called when the learner has waited for long.

        Otherwise it could wait for an actor that is gone, while it holds the slots of those that could play.
        """
        while self._held:
            self._held.popleft()()

    def advance(self, updates_left: int) -> None:
        """Give back the slots that are due, before an update. `updates_left` will be made from the newest unrolls."""
        while self._held and updates_left + (self._room() - len(self._held)) * self._updates <= (self._lead or 0.0):
            self._held.popleft()()
