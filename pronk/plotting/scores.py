"""The score of a run: one number for a whole training, on a scale that different tasks share if asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from pronk.evaluation.atari_scores import human_normalised
from pronk.plotting.curves import curve_of
from pronk.runs.reading import Run, is_number
from pronk.types import UserError

METRICS = {
    "final": "Mean return at the end of training",
    "best": "Best mean return in training",
    "eval": "Mean return in the last evaluation",
    "area": "Mean return over the whole training",
    "late": "Mean return over the last tenth of training",
}
NORMALISATIONS = ("none", "human", "range")
NOT_COMPLETE = {"failed": "failed", "killed": "killed before its end", "running": "still running"}  # state -> reason
AREA_POINTS = 512
LATE = 0.9  # of a run's steps, from where on its returns are averaged by `late`


def why_not(run: Run, metric: str) -> str | None:
    """Return why a run cannot be compared, or None if it can."""
    try:
        _ = run.settings
    except UserError as error:
        return str(error)
    if run.state in NOT_COMPLETE:
        cause = f": {run.failure.strip().splitlines()[0]}" if run.failure else ""
        return NOT_COMPLETE[run.state] + cause
    if metric == "eval" and last_evaluation(run) is None:
        return "never evaluated"
    return None if final_return(run) is not None else "no return in its metrics"


def raw_scores(runs: list[Run], metric: str) -> dict[Run, float]:
    """One number for each run of a task."""
    if metric == "area":
        return areas(runs)
    scores = {"final": final_return, "best": lambda run: run.best_return, "eval": last_evaluation, "late": late_return}
    score = scores[metric]
    return {run: float(score(run) or 0.0) for run in runs}  # none is None: `why_not` has left out such runs


def final_return(run: Run) -> float | None:
    """The last mean return that is known."""
    return last_number(run.metrics, "episode_return")


def late_return(run: Run) -> float:
    """The mean of its learning curve over the last tenth of its steps: less noisy than the last point alone."""
    x, y = curve_of(run.metrics, "env_steps", "episode_return")
    return float(np.interp(np.linspace(LATE * x[-1], x[-1], AREA_POINTS), x, y).mean())


def last_evaluation(run: Run) -> float | None:
    """The mean return of its last evaluation."""
    return last_number(run.evaluations, "mean")


def last_number(lines: list[dict[str, Any]], name: str) -> float | None:
    return next((line[name] for line in reversed(lines) if is_number(line.get(name))), None)


def areas(runs: list[Run]) -> dict[Run, float]:
    """The mean height of each run's learning curve, from the start to where the shortest of these runs ends.

    A run that went on for longer would otherwise look better for that alone.
    """
    curves = {run: curve_of(run.metrics, "env_steps", "episode_return") for run in runs}
    places = (np.arange(AREA_POINTS) + 0.5) / AREA_POINTS * min(x[-1] for x, _ in curves.values())
    return {run: float(np.interp(places, x, y).mean()) for run, (x, y) in curves.items()}


def normalised(raw: dict[Run, float], task: str, normalise: str) -> list[float]:
    """The scores of one task on a scale that all tasks share."""
    values = list(raw.values())
    if normalise == "none":
        return values
    if normalise == "range":
        low, high = min(values), max(values)
        return [(value - low) / (high - low) if high > low else 1.0 for value in values]
    game = str(next(iter(raw)).settings.get("env.game"))
    scores = [human_normalised(game, value) for value in values]
    if None in scores:
        raise UserError(f"normalise=human needs one of the 57 Atari games that have a human score, got {task}")
    return [score for score in scores if score is not None]
