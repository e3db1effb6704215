"""Slopes of a soak: how fast a quantity of a process grows or falls, with an error that allows for autocorrelation.

Samples that follow one another are alike: memory moves in steps, speed in waves. The error of an ordinary fit takes
them for independent, and would call almost every slope significant. So the samples are averaged over a few long blocks
first, and what the means of neighbouring blocks still have in common widens the error further.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

BLOCKS = 20
# Of its standard errors, by which a slope must differ from zero. By chance 1 in 1,200 does (Student's t with 18 degrees
# of freedom), so that about 40 quantities can be judged together.
BEYOND = 4.0


class Quantity(NamedTuple):
    """Something that is sampled, and what change of it in an hour is worth a warning."""

    name: str
    bad: int
    """+1 if growth is the problem, -1 if decline is."""
    share: float
    """Of its mean, per hour."""
    least: float
    """In its own unit, per hour: less is never material."""


QUANTITIES = {
    "pss_mib": Quantity("memory (PSS), MiB", +1, 0.02, 2.0),
    "descriptors": Quantity("descriptors", +1, 0.0, 1.0),
    "threads": Quantity("threads", +1, 0.0, 1.0),
    "steps_per_second": Quantity("steps/s", -1, 0.05, 0.0),
}


class Slope(NamedTuple):
    """A fitted line."""

    mean: float
    per_hour: float
    error: float
    """Standard error of `per_hour`."""

    @property
    def is_zero(self) -> bool:
        """Whether it does not differ from zero beyond its error."""
        return abs(self.per_hour) <= BEYOND * self.error

    def is_bad(self, quantity: Quantity) -> bool:
        """Whether it differs from zero in the bad direction, beyond its error, by an amount that matters."""
        change = self.per_hour * quantity.bad
        return not self.is_zero and change > max(quantity.least, quantity.share * abs(self.mean))


def fit(seconds: Any, values: Any, blocks: int = BLOCKS) -> Slope | None:
    """Fit a line through the means of equally many samples each. None: too few samples for that.

    Args:
        seconds: [S] when each sample was taken, rising.
        values: [S]
        blocks: how many means.
    """
    if len(values) < 2 * blocks:
        return None
    hours = block_means(np.asarray(seconds, float) / 3600, blocks)
    means = block_means(np.asarray(values, float), blocks)
    centred = hours - hours.mean()
    spread = float((centred**2).sum())
    slope = float((centred * means).sum()) / spread
    residuals = means - means.mean() - slope * centred
    error = math.sqrt(float((residuals**2).sum()) / (blocks - 2) / spread)
    return Slope(float(means.mean()), slope, error * widening(residuals))


def block_means(values: np.ndarray[Any, Any], blocks: int) -> np.ndarray[Any, Any]:
    """[S] -> [blocks]; the samples that are too many are dropped at the beginning."""
    size = len(values) // blocks
    return values[len(values) - size * blocks :].reshape(blocks, size).mean(axis=1)


def widening(residuals: np.ndarray[Any, Any]) -> float:
    """Return the factor by which the error grows if neighbouring residuals are alike (an AR(1) process)."""
    total = float((residuals**2).sum())
    alike = float((residuals[1:] * residuals[:-1]).sum()) / total if total > 0 else 0.0
    alike = min(max(alike, 0.0), 0.9)
    return math.sqrt((1 + alike) / (1 - alike))
