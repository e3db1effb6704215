"""Scores as text, with as many digits as their intervals allow."""

from __future__ import annotations

from pronk.metrics.statistics import Interval
from pronk.runs.reading import decimals


def interval_text(interval: Interval) -> str:
    """`184 [171, 195]`, with two significant digits of the interval's width; only the value if there is no interval."""
    value, low, high = (float(end) for end in interval)
    if not low <= high:
        return score_text(value)
    digits = decimals(high - low) if high > low else decimals(abs(value), 3)
    return f"{value:,.{digits}f} [{low:,.{digits}f}, {high:,.{digits}f}]"


def share_text(interval: Interval) -> str:
    """`0.93 [0.80, 1.00]`: a probability, always with two decimals."""
    value, low, high = (float(end) for end in interval)
    return f"{value:.2f} [{low:.2f}, {high:.2f}]" if low <= high else f"{value:.2f}"


def score_text(value: float) -> str:
    """Return a score with at least three significant digits: large numbers keep all that are before the point."""
    return f"{value:,.{decimals(abs(value), 3)}f}"
