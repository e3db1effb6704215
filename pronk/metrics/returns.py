"""What an episode of the policy returns on average: behind `episode_return`, `stop_return` and the best checkpoint.

The estimate is the mean, over all environments, of the episode that each of them finished last (of the last K, so that
the environments together have at least 100).

Why not the mean of the last 100 episodes that ended: environments play side by side, and of the episodes that begin
together the short ones end first, and later many long ones at once. With 512 environments in step and episodes of 1 or
120 steps, of mean return 40.7, that mean wanders between 16 and 49 (this one between 38 and 43).

Why this mean is not biased: consider one environment and a fixed policy, whose episodes have length L with probability
f(L). The last episode that was finished by time t has length L if an episode of length L began at some time s and
another one, begun at s + L, is still being played at t. The sum over s is f(L) times the probability that, leaving that
episode out, some episode is being played at time t - L; and that is always so, if t >= L. So from the time of the
longest episode on, the last finished episode is distributed like any episode, at every t, whether the environments run
in step or not. The same holds for the last but one, and so on. It does not hold for the episode being played at t
(which is longer than most), nor where environments that finish more episodes weigh more.

All this is for a policy that does not change. What a policy gains or loses shows one or two episodes later, as in every
mean of whole episodes; with many updates per episode that can be a lot (docs/results/cartpole.md). So before a run ends
as solved the weights are held, and a `Confirmation` measures their return.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

EPISODES = 100  # at least so many make a full estimate
COVERED = 0.9  # of the environments have finished one: a single endless episode must not delay the end of a run
CONFIRMED = 30  # episodes at least, and one of every environment, confirm that a goal is reached
SILENT_UNROLLS = 20  # that others send on average, after which an environment counts as gone


# Plain tuples, because a class would take longer to make than all else that is done with them.
Column = tuple[int, int, bool, bool]
"""One environment's part of a batch: environment, task, whether it begins with the first observation of an episode, and
whether it ends with one."""
Episode = tuple[int, int, float, int]
"""An episode that ended: environment, task, return, length in steps."""


class Estimate(NamedTuple):
    """Means over the environments."""

    value: float  # the return
    length: float
    episodes: int  # that were averaged
    full: bool  # whether they are enough to judge by


class Result(NamedTuple):
    """Return and length of an episode."""

    value: float
    length: int


@dataclass(slots=True)
class History:
    """The results of one environment."""

    results: list[Result] = field(default_factory=list)
    value: float = 0.0  # the mean of `results`, kept because it is asked for at every update
    length: float = 0.0
    longest: int = 0
    young: list[Result] | None = field(default_factory=list)
    """Finished since its start, while it had played for less than the longest episode takes: mostly short ones."""
    age: int = 0  # steps played since its start
    last_seen: float = 0.0  # when it last sent an unroll
    at_border: bool = False  # its last unroll ended where an episode begins

    def trim_and_average(self, most: int) -> None:
        """Keep the last results, and their means."""
        del self.results[:-most]
        if self.results:
            self.value = math.fsum(result.value for result in self.results) / len(self.results)
            self.length = sum(result.length for result in self.results) / len(self.results)
            self.longest = max(result.length for result in self.results)


class Returns:
    """The estimate, from the columns of every batch in the order in which they were played. One task, or all.

    Environments may come and go. One that is started anew in the middle of an episode has thrown that episode away,
    which happens to long ones more often; until it has played for the time of the longest one, its old results count.
    """

    def __init__(self) -> None:
        self._environments: dict[int, History] = {}
        self._clock = 0.0  # steps that each environment has played, on average
        self._next_look = 0.0  # for environments that are gone
        self._counted = 0  # environments that have a result, or should have one by now
        self._most = EPISODES  # results of each environment
        self._longest = 0  # episode of those that count
        self._estimate: Estimate | None = None

    def record(self, columns: Sequence[Column], episodes: Iterable[Episode], steps: int) -> None:
        """Add a batch: its columns of so many steps each, and the episodes that ended in them."""
        if not columns:
            return
        self._clock += steps * len(columns) / max(1, len(self._environments))
        changed = self._note_played(columns, steps)
        for environment, _, value, length in episodes:
            history = self._environments[environment]
            (history.results if history.young is None else history.young).append(Result(value, length))
            changed[environment] = history
        if self._clock >= self._next_look:
            self._drop_silent(SILENT_UNROLLS * steps + 2 * self._longest)
            changed = self._environments
        if changed:
            self._update(changed.values())

    def estimate(self) -> Estimate | None:
        """None before the first episode has ended."""
        return self._estimate

    def std(self) -> float | None:
        """Return the standard deviation of the episodes that are averaged.

        None before the first has ended, and where every environment that had finished one has left.
        """
        values = [result.value for one in self._environments.values() for result in one.results]
        if not values:
            return None
        mean = math.fsum(values) / len(values)
        return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))

    def _note_played(self, columns: Sequence[Column], steps: int) -> dict[int, History]:
        """Note which environments have played. Returns those whose new results count from now on."""
        grown = {}
        for environment, _, opens, ends in columns:
            history = self._environments.get(environment)
            if history is None:
                history = self._environments[environment] = History()
            elif opens and not history.at_border:  # an episode was being played, and did not end
                history.young, history.age = [], 0
            history.age += steps
            history.last_seen, history.at_border = self._clock, ends
            if history.young is not None and history.age >= self._longest:
                history.results += history.young
                history.young = None
                grown[environment] = history
        return grown

    def _update(self, changed: Iterable[History]) -> None:
        everyone = self._environments.values()
        # Those that have not played long enough, and have no earlier results either, are not missed yet.
        counted = sum(1 for one in everyone if one.results or one.young is None)
        if counted != self._counted:
            self._counted, self._most = counted, math.ceil(EPISODES / max(1, counted))
            changed = everyone
        for history in changed:
            history.trim_and_average(self._most)
        finished = [one for one in everyone if one.results]
        if not finished:
            return
        self._longest = max([one.longest for one in finished])
        sizes = [len(one.results) for one in finished]
        self._estimate = Estimate(
            math.fsum([one.value for one in finished]) / len(finished),
            math.fsum([one.length for one in finished]) / len(finished),
            episodes=sum(sizes),
            full=sum(sizes) >= EPISODES and sizes.count(self._most) >= COVERED * counted,
        )

    def _drop_silent(self, patience: float) -> None:
        """Forget environments whose actor has left."""
        self._environments = {
            number: one for number, one in self._environments.items() if self._clock - one.last_seen <= patience
        }
        self._next_look = self._clock + patience / 4

    def confirmation(self) -> Confirmation:
        """Start to measure the return of the present weights, in all environments that play."""
        return Confirmation(self._environments)

    def state(self) -> list[Any]:
        """For the checkpoint: plain data."""
        return [(number, [tuple(each) for each in one.results]) for number, one in self._environments.items()]

    def load_state(self, state: Iterable[Any]) -> None:
        """Continue from `state()`. All environments were started again after it was saved."""
        self._environments = {number: History([Result(*each) for each in results]) for number, results in state}
        self._update(self._environments.values())


@dataclass(slots=True)
class HeldEpisodes:
    """What one environment has played since the weights were held."""

    values: list[Result] = field(default_factory=list)
    from_its_start: bool | None = None  # the present episode was begun with these weights; None: no column yet
    playing: int = 0  # steps since an episode ended, or since the weights were held
    at_border: bool = False
    last_seen: int = 0  # columns of all environments when its last one came


class Confirmation:
    """The mean of the first episodes that every environment begins with weights that are held.

    The first ones, and of all environments: to stop when enough have ended would favour the short ones. An episode that
    was being played when the weights were held does not count. Two kinds of environments are not waited for: those that
    send nothing any more, and, if they are few, those that play far longer than any finished episode took.
    """

    def __init__(self, environments: Iterable[int]) -> None:
        self._held = {number: HeldEpisodes() for number in environments}
        self._wanted = math.ceil(CONFIRMED / max(1, len(self._held)))  # episodes of each
        self._columns = self._longest = 0
        self.steps = 0  # played so far

    def record(self, columns: Sequence[Column], episodes: Iterable[Episode], steps: int) -> None:
        """Add columns of so many steps each that the held weights played, and the episodes that ended in them."""
        self._columns += len(columns)
        self.steps += steps * len(columns)
        for environment, _, opens, ends in columns:
            held = self._held.setdefault(environment, HeldEpisodes())
            if held.from_its_start is None:
                held.from_its_start = opens
            elif opens and not held.at_border:  # started anew: the episode it was playing is lost
                held.from_its_start, held.playing = True, 0
            held.last_seen, held.at_border = self._columns, ends
            held.playing += steps
        for environment, _, value, length in episodes:
            held = self._held[environment]
            self._longest = max(self._longest, length)
            if held.from_its_start and len(held.values) < self._wanted:
                held.values.append(Result(value, length))
            held.from_its_start, held.playing = True, 0

    def estimate(self) -> Estimate | None:
        """Return the estimate for the held weights. None while more episodes are needed."""
        patience = SILENT_UNROLLS * len(self._held)
        present = [held for held in self._held.values() if self._columns - held.last_seen <= patience]
        unfinished = [held for held in present if len(held.values) < self._wanted]
        if any(held.playing <= 2 * self._longest or held.from_its_start is None for held in unfinished):
            return None
        if len(present) - len(unfinished) < COVERED * len(present):
            return None
        results = [result for held in present for result in held.values]
        if not results:
            return None
        value = math.fsum(result.value for result in results) / len(results)
        return Estimate(value, sum(result.length for result in results) / len(results), len(results), full=True)
