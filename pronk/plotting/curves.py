"""Curves of metrics: smoothing, and the centre and the band over the seeds of a group. NumPy only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pronk.metrics.statistics import CONFIDENCE, iqm
from pronk.runs.reading import is_number

POINTS = 400  # of a group's curve
NEAR = 0.02  # share of the axis within which two runs count as ending at the same place
BAND_RESAMPLES = 1000
CENTRES = ("mean", "iqm")
BANDS = ("range", "std", "bootstrap")
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


def summarised(curves: list[Curve], band: str, centre: str = "mean") -> tuple[np.ndarray, ...]:
    """Return x, centre, low and high, wherever at least two of the curves have values.

    Where one of them ends before the others, the rest go on: x has that value twice, because the centre may jump there.
    """
    if len(curves) == 1:
        x, y = curves[0]
        return x, y, y, y
    near = NEAR * (max(x[-1] for x, _ in curves) - min(x[0] for x, _ in curves))
    starts = [-place for place in joined([-x[0] for x, _ in curves], near)]
    ends = joined([x[-1] for x, _ in curves], near)
    begin, end = sorted(starts)[1], sorted(ends)[-2]
    places = sorted({begin, end, *(place for place in (*starts, *ends) if begin < place < end)})
    pieces = []
    for left, right in zip(places, places[1:] or places, strict=False):
        there = [curve for curve, a, b in zip(curves, starts, ends, strict=True) if a <= left and right <= b]
        if len(there) > 1:
            points = max(2, round(POINTS * (right - left) / (end - begin))) if end > begin else 1
            pieces.append(piece(there, np.linspace(left, right, points), band, centre))
    return tuple(np.concatenate(parts) for parts in zip(*pieces, strict=True)) if pieces else (np.empty(0),) * 4


def joined(places: list[float], near: float) -> list[float]:
    """Replace values that are within `near` of a lower one by that: runs of one length do not end at the same step."""
    lowest: list[float] = []
    for place in sorted(places):
        if not lowest or place - lowest[-1] > near:
            lowest.append(place)
    return [max(one for one in lowest if one <= place) for place in places]


def piece(curves: list[Curve], grid: np.ndarray, band: str, centre: str) -> tuple[np.ndarray, ...]:
    """The summary of curves that all have values on the grid."""
    table = np.stack([np.interp(grid, x, y) for x, y in curves])
    middle = centre_of(table, centre)
    return (grid, middle, *band_of(table, middle, band, centre))


def centre_of(table: np.ndarray, centre: str) -> np.ndarray:
    """[..., runs, points] -> [..., points]."""
    return iqm(np.swapaxes(table, -1, -2)[..., None]) if centre == "iqm" else table.mean(axis=-2)


def band_of(table: np.ndarray, middle: np.ndarray, band: str, centre: str) -> tuple[np.ndarray, np.ndarray]:
    """The low and the high end of a band around the centre, [points] each."""
    if band == "range":
        return table.min(axis=0), table.max(axis=0)
    if band == "std":
        half = table.std(axis=0, ddof=1)
        return middle - half, middle + half
    # Whole runs are drawn, not points, so neighbouring points have the same resamples and the band is smooth.
    runs = len(table)
    picked = np.random.default_rng(0).integers(runs, size=(BAND_RESAMPLES, runs))
    centres = np.concatenate([centre_of(table[some], centre) for some in np.array_split(picked, 20)])
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(centres, [tail, 100 - tail], axis=0)
    return low, high
