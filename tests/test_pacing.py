"""When slots are given back: simulated with actors that take a given time to play an unroll."""

from __future__ import annotations

import pytest

from pronk.pacing import Pacer

UPDATES = 64  # from each unroll
STARVING = 10 * UPDATES  # updates: as long as this, the learner waits for what has been given back


class Simulation:
    """Time in updates. Actors play side by side, each in one slot; the learner takes unrolls as they come."""

    def __init__(self, actors: int, play: float) -> None:
        self._pacer, self._play = Pacer(UPDATES, lambda: actors), play
        self._now = 0.0
        self._playing = [(play, 0.0)] * actors  # when it is there, when its parameters were made
        self.waits: list[float] = []
        self.ages: list[float] = []

    def run(self, unrolls: int) -> None:
        for _ in range(unrolls):
            if not self._playing or min(self._playing)[0] > self._now + STARVING:
                self._pacer.give_all_back()
            there, made = min(self._playing)
            self._playing.remove((there, made))
            wait = max(0.0, there - self._now)
            self._now += wait
            self.waits.append(wait)
            self.ages.append(self._now - made)
            self._pacer.taken(self._give_back, waited=wait > 0)
            for left in range(UPDATES, 0, -1):
                self._pacer.advance(left)
                self._now += 1.0

    def lose_an_actor(self) -> None:
        """One that is playing is gone for good; its slot still counts."""
        self._playing.pop()

    def _give_back(self) -> None:
        self._playing.append((self._now + self._play, self._now))


@pytest.mark.parametrize("actors", [1, 2, 4])
@pytest.mark.parametrize("play", [3.0, 20.0, 50.0])
def test_unrolls_of_fast_actors_are_fresh_and_the_learner_hardly_waits(actors: int, play: float) -> None:
    simulation = Simulation(actors, play)
    simulation.run(300)
    ages, waits = simulation.ages[100:], simulation.waits[100:]
    assert sum(ages) / len(ages) < play + 3 + 0.1 * play
    assert sum(waits) / len(waits) < 0.01 * UPDATES


def test_an_actor_is_not_held_back_for_one_that_is_gone() -> None:
    simulation = Simulation(actors=2, play=3.0)
    simulation.run(50)
    simulation.lose_an_actor()
    simulation.run(50)  # fails if nobody plays any more
    assert sum(simulation.waits[50:]) / 50 < 0.1 * UPDATES


def test_slow_actors_never_wait() -> None:
    simulation = Simulation(actors=2, play=500.0)
    simulation.run(100)
    assert sum(simulation.waits[50:]) / 50 == pytest.approx(250 - UPDATES, rel=0.05)


def test_several_actors_share_the_work_where_one_is_too_slow() -> None:
    simulation = Simulation(actors=4, play=100.0)
    simulation.run(400)
    assert sum(simulation.waits[200:]) / 200 < 0.02 * UPDATES
    assert max(simulation.ages[200:]) < 3 * UPDATES


def test_whatever_happens_something_is_given_back_before_the_next_is_needed() -> None:
    given: list[int] = []
    pacer = Pacer(UPDATES, lambda: 1)
    for unroll in range(200):
        pacer.taken(lambda unroll=unroll: given.append(unroll), waited=False)
        for left in range(UPDATES, 0, -1):
            pacer.advance(left)
        assert given[-1:] == [unroll]
