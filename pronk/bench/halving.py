"""Successive halving: settings take turns, and after each round the slower half leaves.

    round 1   a b c d e f g h      all of them
    round 2   h e c a              the faster half, in the opposite order, so that a drift of the machine favours none
    ...
    last      a c | c a | a c      the finalists, several times

All that are left in a round are measured one after another, so speeds are compared within a round. The default stays
to the end, as what the others are compared with.
"""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

FINALISTS = 4
FINAL_ROUNDS = 3

S = TypeVar("S", bound=Hashable)


class Turn(NamedTuple, Generic[S]):
    """One setting's turn. Rounds and turns count from 1."""

    round: int
    number: int
    setting: S


class Halving(Generic[S]):
    """Decides which setting is measured next, from the speeds of those before."""

    def __init__(
        self, settings: Sequence[S], default: S, finalists: int = FINALISTS, final_rounds: int = FINAL_ROUNDS
    ) -> None:
        """`default` is one of the settings."""
        self.default, self._finalists = default, finalists
        self.left: list[S] = [default, *(one for one in settings if one != default)]
        self.speeds: dict[S, dict[int, float]] = {one: {} for one in self.left}
        """Setting -> round -> speed."""
        self._sizes = round_sizes(len(self.left), finalists, final_rounds)

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return len(self._sizes)

    @property
    def turns_at_most(self) -> int:
        """How many turns there are if the default is never among the fastest."""
        return sum(self._sizes) + self.rounds - 1

    def turns(self) -> Iterator[Turn[S]]:
        """Yield the turns. `record` or `drop` has to be called after each."""
        number = 0
        for index in range(1, self.rounds + 1):
            if index > 1:
                self.left = self._fastest(self._sizes[index - 1])
            for setting in list(self.left if index % 2 else reversed(self.left)):
                number += 1
                yield Turn(index, number, setting)

    def record(self, turn: Turn[S], speed: float) -> None:
        """Keep what a turn has measured."""
        self.speeds[turn.setting][turn.round] = speed

    def drop(self, setting: S) -> None:
        """Take out a setting that cannot be measured."""
        self.left.remove(setting)

    def ratios(self, setting: S) -> list[float]:
        """Return the speed as a multiple of the default's, of each round in which both were measured."""
        other = self.speeds[self.default]
        return [speed / other[index] for index, speed in self.speeds[setting].items() if index in other]

    def finalists(self) -> list[S]:
        """Return the settings that are left and were measured beside the default, the fastest first."""
        return sorted(filter(self.ratios, self.left), key=self._ratio, reverse=True)

    def _ratio(self, setting: S) -> float:
        return statistics.median(self.ratios(setting))

    def _fastest(self, count: int) -> list[S]:
        """Return so many of those that are left, and the default."""
        rounds = list(self.speeds[self.default])
        typical = {index: statistics.median(self.speeds[one][index] for one in self.left) for index in rounds}

        def score(setting: S) -> float:
            return statistics.median(self.speeds[setting][index] / typical[index] for index in rounds)

        fastest = sorted(self.left, key=score, reverse=True)[:count]
        return fastest if self.default in fastest else [self.default, *fastest]


def round_sizes(settings: int, finalists: int, final_rounds: int) -> list[int]:
    """Return how many settings each round has, not counting a default that stays although it is slow."""
    sizes = []
    while settings > finalists:
        sizes.append(settings)
        settings = max(finalists, -(-settings // 2))
    return sizes + [settings] * final_rounds
