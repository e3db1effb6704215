"""Curves of metrics: smoothing, and the mean and the band over the seeds of a group. NumPy only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pronk.runs.reading import is_number

POINTS = 400  # of a mean's curve
Curve = tuple[np.ndarray, np.ndarray]  # x, ascending, and y


def curve_of(lines: Sequence[dict[str, Any]], axis: str, metric: str, smooth: float = 0.0) -> Curve:
    """A metric of one run against another that only grows, where both are known."""
    pairs = [(line.get(axis), line.get(metric)) for line in lines]
    known = [(a, b) for a, b in pairs if is_number(a) and is_number(b)]
    x, y = np.array(known, float).reshape(-1, 2).T
    return x, smoothed(x, y, smooth)


def smoothed(x: np.ndarray, y: np.ndarray, share: float) -> np.ndarray:
    """Each point as the mean of those within half of `share` of the axis on either side."""
    if share == 0 or len(x) < 3:
        return y
    half = share * (x[-1] - x[0]) / 2
    low, high = np.searchsorted(x, x - half, "left"), np.searchsorted(x, x + half, "right")
    total = np.concatenate([[0.0], np.cumsum(y)])
    return (total[high] - total[low]) / (high - low)


def summarised(curves: list[Curve], band: str) -> tuple[np.ndarray, ...]:
    """x, mean, low and high where every curve has values. Beyond that a mean would be of other seeds than before."""
    if len(curves) == 1:
        x, y = curves[0]
        return x, y, y, y
    begin, end = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    grid = np.linspace(begin, max(begin, end), POINTS)
    table = np.stack([np.interp(grid, x, y) for x, y in curves])
    mean = table.mean(axis=0)
    if band == "std":
        half = table.std(axis=0, ddof=1)
        return grid, mean, mean - half, mean + half
    return grid, mean, table.min(axis=0), table.max(axis=0)
