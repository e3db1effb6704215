"""The estimate of the return: not biased by the lengths of episodes, whoever plays in step with whom."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import numpy as np
import pytest

from pronk.metrics.returns import CONFIRMED, EPISODES, SILENT_UNROLLS, Column, Confirmation, Episode, Returns

T = 10  # steps of an unroll


class Player:
    """One environment that plays a script of (length, return), unroll by unroll."""

    def __init__(self, number: int, script: Iterator[tuple[int, float]], task: int = 0) -> None:
        self.number, self._script, self._task = number, script, task
        self._begin()

    def _begin(self) -> None:
        (self._length, self._value), self._played = next(self._script), 0

    def start_anew(self) -> None:
        """Throw the episode away."""
        self._begin()

    def play(self) -> tuple[Column, list[Episode]]:
        opens, episodes, left = self._played == 0, [], T
        while left:
            steps = min(left, self._length - self._played)
            self._played, left = self._played + steps, left - steps
            if self._played == self._length:
                episodes.append((self.number, self._task, self._value, self._length))
                self._begin()
        return (self.number, self._task, opens, self._played == 0), episodes


def record(returns: Returns | Confirmation, players: list[Player]) -> None:
    columns, episodes = zip(*(player.play() for player in players), strict=True)
    returns.record(columns, [episode for each in episodes for episode in each], T)


def short_or_long(seed: int) -> Iterator[tuple[int, float]]:
    """Of mean return 40.7: each step pays 1, and a third of the episodes are a hundred times longer than the others."""
    chance = random.Random(seed)
    while True:
        yield (120, 120.0) if chance.random() < 1 / 3 else (1, 1.0)


def always(length: int, value: float) -> Iterator[tuple[int, float]]:
    while True:
        yield length, value


@pytest.mark.parametrize("count", [1, 7, 64, 256, 512])
def test_estimate_is_not_biased_at_any_time_when_environments_run_in_step(count: int) -> None:
    """The mean of the last 100 that ended is wrong by more than half at times: see `returns.py`."""
    enough = 12 * -(-EPISODES // count)  # unrolls, if all episodes are long
    unrolls, repeats = range(enough, enough + 20), max(2, 1024 // max(count, 64))
    told: dict[int, list[float]] = {unroll: [] for unroll in unrolls}
    for repeat in range(repeats):
        players = [Player(number, short_or_long(repeat * 1000 + number)) for number in range(count)]
        returns = Returns()
        for unroll in range(unrolls.stop):
            record(returns, players)
            if unroll in told:
                estimate = returns.estimate()
                assert estimate is not None
                assert estimate.full
                told[unroll].append(estimate.value)
    means = np.array([np.mean(values) for values in told.values()])
    error = 56.2 / np.sqrt(repeats * max(count, EPISODES))  # of the mean at one time
    assert np.abs(means - (120 + 2 * 1) / 3).max() < 4.5 * error


def test_few_that_are_lucky_do_not_make_it_full() -> None:
    """Where short is good, those that finish first are the best: of 200 environments, half."""
    players = [Player(n, always(*((10, 0.0) if n % 2 else (500, -500.0)))) for n in range(200)]
    returns = Returns()
    for _ in range(49):
        record(returns, players)
        estimate = returns.estimate()
        assert estimate is not None
        assert (estimate.value, estimate.full) == (0.0, False)
    record(returns, players)
    estimate = returns.estimate()
    assert estimate == (-250.0, 255.0, 200, True)


def test_one_endless_episode_does_not_delay_the_rest() -> None:
    players = [Player(n, always(10**9 if n == 3 else 25, 7.0)) for n in range(20)]
    returns = Returns()
    for _ in range(15):
        record(returns, players)
    assert returns.estimate() == (7.0, 25.0, 19 * 5, False)  # five of each make a hundred
    players.append(Player(20, always(25, 7.0)))
    for _ in range(15):
        record(returns, players)
    assert returns.estimate() == (7.0, 25.0, 100, True)


def test_an_environment_that_starts_anew_counts_when_it_has_played_as_long_as_the_longest_episode() -> None:
    """Else its short episodes would count before its long ones had a chance."""
    scripts = [iter([(100, 100.0)] * 3 + [(10, 10.0)] * 1000) if n % 2 else always(100, 100.0) for n in range(100)]
    players = [Player(n, script) for n, script in enumerate(scripts)]
    returns = Returns()
    for _ in range(25):
        record(returns, players)
    for player in players:  # a third episode is lost in the middle
        player.start_anew()
    for _ in range(9):
        record(returns, players)
        assert returns.estimate() == (100.0, 100.0, 100, True)
    record(returns, players)
    assert returns.estimate() == (55.0, 55.0, 100, True)


def test_one_that_joins_counts_when_it_has_played_as_long_as_the_longest_episode() -> None:
    players = [Player(n, always(100, 100.0)) for n in range(100)]
    returns = Returns()
    for _ in range(20):
        record(returns, players)
    players += [Player(100 + n, always(10, 10.0)) for n in range(100)]
    for _ in range(9):
        record(returns, players)
        assert returns.estimate() == (100.0, 100.0, 100, True)
    record(returns, players)
    assert returns.estimate() == (55.0, 55.0, 200, True)


def test_those_that_have_left_are_forgotten() -> None:
    players = [Player(n, always(20, float(n < 50))) for n in range(100)]
    returns = Returns()
    for _ in range(10):
        record(returns, players)
    assert returns.estimate() == (0.5, 20.0, 100, True)
    for _ in range(3 * SILENT_UNROLLS):
        record(returns, players[:50])
    assert returns.estimate() == (1.0, 20.0, 100, True)


def test_where_all_have_left_the_estimate_stays_until_those_who_came_finish_an_episode() -> None:
    first, later = Player(0, always(20, 1.0)), Player(1, always(20 * T * SILENT_UNROLLS, 2.0))
    returns = Returns()
    for _ in range(10):
        record(returns, [first])
    estimate = returns.estimate()
    for _ in range(3 * SILENT_UNROLLS):
        record(returns, [later])
    assert returns.estimate() == estimate
    assert returns.std() is None


def test_slow_ones_count_as_much_as_quick_ones() -> None:
    """An actor with a tenth of the speed sends a tenth of the unrolls."""
    players = [Player(n, always(20, float(n % 2))) for n in range(100)]
    returns = Returns()
    for unroll in range(60):
        record(returns, [player for player in players if player.number % 2 or unroll % 10 == 0])
    assert returns.estimate() == (0.5, 20.0, 100, True)


def test_a_batch_may_hold_one_environment_several_times() -> None:
    player = Player(0, iter((length, float(length)) for length in range(1, 1000)))
    parts = [player.play() for _ in range(30)]
    together, apart = Returns(), Returns()
    together.record([column for column, _ in parts], [one for _, ended in parts for one in ended], T)
    for column, ended in parts:
        apart.record([column], ended, T)
    assert together.estimate() == apart.estimate()


def test_state_is_plain_and_a_resumed_run_keeps_its_estimate_until_it_has_a_better_one() -> None:
    players = [Player(n, always(100, float(n))) for n in range(150)]
    returns = Returns()
    for _ in range(12):
        record(returns, players)
    other = Returns()
    other.load_state(json.loads(json.dumps(returns.state())))
    assert other.estimate() == returns.estimate()
    players = [Player(n, always(10, 0.0)) for n in range(150)]
    for _ in range(9):
        record(other, players)
        assert other.estimate() == returns.estimate()
    record(other, players)
    assert other.estimate() == (0.0, 10.0, 150, True)


def test_no_estimate_without_an_episode() -> None:
    returns = Returns()
    returns.record([(0, 0, True, False)], [], T)
    returns.record([], [], T)
    assert returns.estimate() is None


def confirm(players: list[Player], most: int = 1000) -> Confirmation:
    confirmation = Confirmation([player.number for player in players])
    for _ in range(most):
        record(confirmation, players)
        if confirmation.estimate():
            break
    return confirmation


def value_of(confirmation: Confirmation) -> float:
    estimate = confirmation.estimate()
    assert estimate is not None
    return estimate.value


@pytest.mark.parametrize("count", [1, 7, 64, 256])
def test_confirmation_is_not_biased_by_the_lengths_of_episodes(count: int) -> None:
    values, repeats = [], 4096 // max(count, CONFIRMED)
    for repeat in range(repeats):
        players = [Player(number, short_or_long(repeat * 1000 + number)) for number in range(count)]
        for player in players:
            player.play()  # so that most are in the middle of an episode when the weights are held
        values.append(value_of(confirm(players)))
    error = 56.2 / np.sqrt(repeats * max(count, CONFIRMED))
    assert abs(np.mean(values) - (120 + 2 * 1) / 3) < 4.5 * error


def test_episode_that_was_begun_before_does_not_confirm() -> None:
    def better() -> Iterator[tuple[int, float]]:
        yield 25, 0.0
        yield from always(25, 100.0)

    players = [Player(number, better()) for number in range(40)]
    for player in players:
        player.play()
    assert value_of(confirm(players)) == 100.0
    begun_with_them = [Player(number, better()) for number in range(40)]
    assert value_of(confirm(begun_with_them)) == 0.0


def test_confirmation_waits_for_every_environment_that_plays() -> None:
    slow = [Player(number, always(500, 0.0)) for number in (8, 9)]
    quick = [Player(number, always(20, 1.0)) for number in range(8)]
    assert confirm([*quick, *slow], most=100).estimate() is None
    assert value_of(confirm([*quick, *slow])) == 0.8
    confirmation = Confirmation(range(10))
    present = [Player(number, always(20, 1.0)) for number in range(9)]
    for _ in range(SILENT_UNROLLS):
        record(confirmation, present)
        assert confirmation.estimate() is None  # the tenth may be slow to send its first unroll
    for _ in range(SILENT_UNROLLS):
        record(confirmation, present)
    assert value_of(confirmation) == 1.0


def test_few_endless_episodes_do_not_hold_a_confirmation_up_but_many_do() -> None:
    quick = [Player(number, always(20, 1.0)) for number in range(18)]
    endless = [Player(18 + number, always(10**9, 0.0)) for number in range(4)]
    assert value_of(confirm([*quick, *endless[:2]])) == 1.0
    assert confirm([*quick, *endless]).estimate() is None


def test_environment_started_anew_goes_on_with_its_next_episode() -> None:
    players = [Player(number, always(25, 1.0)) for number in range(CONFIRMED)]
    confirmation = Confirmation(range(CONFIRMED))
    record(confirmation, players)
    for player in players:
        player.start_anew()
    for _ in range(2):
        record(confirmation, players)
        assert confirmation.estimate() is None
    record(confirmation, players)
    assert value_of(confirmation) == 1.0
