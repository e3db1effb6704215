"""Values that change during a run: the learning rate and the costs of exploring.

A schedule is a factor of the configured value. It depends on how far the run is (linear, cosine, late) or on the
environment steps trained (points).
"""

from __future__ import annotations

import itertools
import math

from pronk.config import ResolvedConfig
from pronk.config.section import Schedule

LAST_PART = 0.3  # of a run: in it, a value with the schedule `late` falls to 0


def progress_of(config: ResolvedConfig, env_steps: int, seconds: float) -> float:
    """Return how far a run is, from 0 to 1, by the first of its limits that it will reach."""
    run = config.run
    return min(1.0, max(env_steps / run.total_steps, seconds / (run.total_seconds or math.inf)))


def learning_rate(config: ResolvedConfig, progress: float, env_steps: int) -> float:
    """Return the learning rate of the next update."""
    return config.optimiser.learning_rate * factor(config.optimiser.schedule, progress, env_steps)


def exploration(config: ResolvedConfig, progress: float, env_steps: int) -> float:
    """Return what the costs of exploring, `loss.entropy_cost` and `barrier_cost`, are multiplied by."""
    return factor(config.loss.entropy_schedule, progress, env_steps)


def factor(schedule: Schedule, progress: float, env_steps: int) -> float:
    """Return what a scheduled value is multiplied by.

    Args:
        schedule: `constant`, `linear`, `cosine`, `late`, or points `[[env_steps, factor], ...]`.
        progress: how far the run is, from 0 to 1.
        env_steps: environment steps trained.
    """
    match schedule:
        case "constant":
            return 1.0
        case "linear":
            return 1.0 - progress
        case "cosine":
            return (1.0 + math.cos(math.pi * progress)) / 2
        case "late":
            return min(1.0, (1.0 - progress) / LAST_PART)
        case list():
            return interpolated(schedule, env_steps)
    raise ValueError(f"no such schedule: {schedule!r}")


def interpolated(points: list[list[float]], env_steps: int) -> float:
    """Return the factor on the straight lines between points; outside of them, that of the first or last point."""
    if env_steps < points[0][0]:
        return points[0][1]
    for (start, before), (end, after) in itertools.pairwise(points):
        if env_steps < end:
            return before + (after - before) * (env_steps - start) / (end - start)
    return points[-1][1]
