"""The rules of population-based training, as in the IMPALA paper (arXiv 1802.01561), after arXiv 1711.09846.

exploit   a member copies weights and settings of a random member that is more than 5% (absolute) better
explore   each setting is multiplied or divided by 1.2 with probability 33%, whether a copy was made or not
burn-in   before a number of steps neither happens

All of it is plain arithmetic on numbers that the caller draws from `numpy.random.Generator`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Settings = dict[str, Any]
Prior = dict[str, Any]
"""{low, high, log}, {choices} or {start}."""
Chance = np.random.Generator


@dataclass(frozen=True)
class Rules:
    """The numbers of the rules; the defaults are the paper's."""

    priors: dict[str, Prior]
    margin: float = 0.05
    """By how much a member must be better to be copied; fitness goes from 0 to 1."""
    partner: Literal["better", "any"] = "better"
    """Draw the member to copy among those that are better, or among all, and copy it only if it is better."""
    probability: float = 0.33
    factor: float = 1.2


@dataclass(frozen=True)
class Parent:
    """A member at the end of a round."""

    settings: Settings
    fitness: float | None
    """None: no episode has ended."""
    failed: bool = False


@dataclass(frozen=True)
class Child:
    """The same member at the start of the next round."""

    settings: Settings
    parent: int | None = None
    """Whose weights it begins with; None: its own."""


def draw(prior: Prior, chance: Chance) -> Any:
    """Return a first value: log-uniform, uniform, or one of a list."""
    listed = prior.get("choices") or prior.get("start")
    if listed:
        return listed[int(chance.integers(len(listed)))]
    low, high = prior["low"], prior["high"]
    log = prior.get("log")
    value = math.exp(chance.uniform(math.log(low), math.log(high))) if log else chance.uniform(low, high)
    return round(value) if is_whole(prior) else rounded(value)


def explore(settings: Settings, rules: Rules, chance: Chance, is_valid: Callable[[Settings], bool]) -> Settings:
    """Return settings of which some are changed. A change that would not be valid is left out."""
    for key, prior in rules.priors.items():
        changes, up = chance.random() < rules.probability, chance.random() < 0.5
        if changes:
            changed = settings | {key: moved(settings[key], prior, rules.factor, up)}
            settings = changed if is_valid(changed) else settings
    return settings


def moved(value: Any, prior: Prior, factor: float, up: bool) -> Any:
    """Return a value one move higher or lower: by the factor, or to the neighbour in a list of choices.

    The prior bounds only the first values, not these: the best ones may lie outside.
    """
    choices = prior.get("choices")
    if choices:
        place = choices.index(value) + (1 if up else -1)
        return choices[min(max(place, 0), len(choices) - 1)]
    if is_whole(prior):
        return max(value + 1, round(value * factor)) if up else min(value - 1, round(value / factor))
    return rounded(value * factor if up else value / factor)


def exploit(own: int, parents: Sequence[Parent], rules: Rules, chance: Chance) -> int | None:
    """Return the member that a member copies; None: it continues with its own weights.

    A member that failed (for example because its loss was not finite) cannot: it copies any other that has not failed.
    """
    others = [number for number, parent in enumerate(parents) if number != own and not parent.failed]
    if parents[own].failed:
        return pick(others, chance)
    better = {number for number in others if is_better(parents[number], parents[own], rules.margin)}
    if rules.partner == "better":
        return pick(sorted(better), chance)
    drawn = pick(others, chance)
    return drawn if drawn in better else None


def is_better(other: Parent, own: Parent, margin: float) -> bool:
    return other.fitness is not None and own.fitness is not None and other.fitness - own.fitness > margin


def pick(members: Sequence[int], chance: Chance) -> int | None:
    return members[int(chance.integers(len(members)))] if members else None


def next_generation(
    parents: Sequence[Parent],
    rules: Rules,
    chances: Sequence[Chance],
    *,
    burning_in: bool,
    is_valid: Callable[[Settings], bool],
) -> list[Child]:
    """Return how every member begins the next round.

    Args:
        parents: the members at the end of the last one.
        rules: the numbers of the rules.
        chances: one generator per member, so that what is drawn for one does not depend on the others.
        burning_in: no member copies or changes yet, except for those that failed, which have to copy.
        is_valid: whether settings make a valid run.
    """
    children = []
    for own, chance in enumerate(chances):
        copied = None if burning_in and not parents[own].failed else exploit(own, parents, rules, chance)
        settings = parents[own if copied is None else copied].settings
        settings = settings if burning_in else explore(settings, rules, chance, is_valid)
        children.append(Child(settings, copied))
    return children


def normalised(values: Sequence[float | None], scale: tuple[float, float]) -> list[float | None]:
    """Return returns as fitness: 0 at the lower end of the scale, 1 at the upper one. They may lie beyond."""
    low, high = scale
    width = high - low or 1.0
    return [None if value is None else (value - low) / width for value in values]


def is_whole(prior: Prior) -> bool:
    """Whether a range is of integers."""
    return isinstance(prior.get("low"), int) and isinstance(prior.get("high"), int)


def rounded(value: float) -> float:
    """Six digits: enough for any setting, and readable."""
    return float(f"{value:.6g}")
