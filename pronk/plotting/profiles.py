"""The picture of `pronk compare`: the interquartile mean of each group with its interval, and performance profiles."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from pronk.metrics.statistics import CONFIDENCE, bootstrap, performance_profile
from pronk.plotting.compare import Compared, GroupScores
from pronk.plotting.figures import look_of, styled
from pronk.plotting.numbers import interval_text
from pronk.plotting.scores import METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

THRESHOLDS = 121
LABEL_WIDTH = 34  # characters of a line
NORMALISED = {"human": "Human-normalised score", "range": "Score from the worst run (0) to the best (1)"}
MOST_NAMED = 4  # tasks in the title
MOST_BANDS = 5  # of more groups, bands would hide one another


def draw_comparison(result: Compared) -> Figure:
    """Draw the intervals on the left and the profiles on the right, each group in the same colour, dash and marker."""
    from matplotlib.figure import Figure

    looks = [look_of(index) for index in range(len(result.groups))]
    labels = [label_of(group) for group in result.groups]
    lines = sum(label.count("\n") + 1 for label in labels)
    with styled():
        figure = Figure(figsize=(8.6, max(3.0, 1.4 + 0.17 * lines + 0.12 * len(labels))), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.35))
        figure.suptitle(title_of(result), x=0.01, ha="left", fontsize=11.5, fontweight="bold")
        draw_intervals(left, result, labels, looks)
        draw_profiles(right, result, looks)
    return figure


def title_of(result: Compared) -> str:
    """What was played."""
    return ", ".join(result.tasks) if len(result.tasks) <= MOST_NAMED else f"{len(result.tasks)} tasks"


def label_of(group: GroupScores) -> str:
    """The name of a group, in short lines, and its numbers below."""
    name = textwrap.fill(group.label, LABEL_WIDTH, break_long_words=True)
    return f"{name}\n{interval_text(group.iqm)}"


def axis_title(result: Compared) -> str:
    """What the scores are."""
    return NORMALISED.get(result.normalise, METRICS[result.metric])


def draw_intervals(axis: Axes, result: Compared, labels: list[str], looks: list[dict[str, Any]]) -> None:
    """A row for each group: a bar from the low to the high end, a mark at the value."""
    for row, (group, look) in enumerate(zip(result.groups, looks, strict=True)):
        value, low, high = (float(end) for end in group.iqm)
        if low <= high:  # else NaN: one run
            axis.barh(row, high - low, left=low, height=0.4, color=look["color"], alpha=0.3, linewidth=0)
            axis.plot([low, low, np.nan, high, high], [row - 0.2, row + 0.2, np.nan, row - 0.2, row + 0.2],
                      color=look["color"], linewidth=1.2)  # fmt: skip
        axis.plot(value, row, marker=look["marker"], color=look["color"], markersize=6.5, linestyle="none")
    axis.set_yticks(range(len(labels)), labels)
    axis.tick_params(axis="y", length=0)
    axis.set_ylim(len(labels) - 0.4, -0.6)  # the first group on top
    axis.grid(axis="y", visible=False)
    axis.use_sticky_edges = False  # else a bar's end would touch the axis
    axis.margins(x=0.08)
    axis.locator_params(axis="x", nbins=5)
    axis.set_title(f"Interquartile mean, {CONFIDENCE:.0%} interval")
    axis.set_xlabel(axis_title(result))


def draw_profiles(axis: Axes, result: Compared, looks: list[dict[str, Any]]) -> None:
    """For each group, the share of runs with a score above x, with a band."""
    every = np.concatenate([group.scores[~np.isnan(group.scores)] for group in result.groups])
    margin = 0.03 * (every.max() - every.min()) or 1.0
    thresholds = np.linspace(every.min() - margin, every.max() + margin, THRESHOLDS)
    for group, look in zip(result.groups, looks, strict=True):
        share, low, high = bootstrap(lambda scores: performance_profile(scores, thresholds), group.scores)
        if group.fewest > 1 and len(result.groups) <= MOST_BANDS:
            axis.fill_between(thresholds, low, high, color=look["color"], alpha=0.15, linewidth=0, step="mid")
        marks: dict[str, Any] = {"markevery": (7, 22), "markersize": 4.5, "markeredgewidth": 0}
        axis.plot(thresholds, share, **look, **marks, drawstyle="steps-mid")
    axis.set_xlim(thresholds[0], thresholds[-1])
    axis.set_ylim(-0.02, 1.02)
    axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    axis.set_title("Performance profile: share of runs above x")
    axis.set_xlabel(axis_title(result))
