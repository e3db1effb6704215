"""Computes docs/pictures/vtrace.png: what V-trace does on a chain of seven states, against the true values.

    python docs/make_vtrace_figure.py

The agent walks left or right. Leaving the chain on the right pays 1; leaving it on either side ends the episode. The
learner's policy prefers the right; the actor's is `lag` updates older and prefers it less with each. Lines are exact,
from linear equations; points are Pronk's own `vtrace`, applied again and again to sampled unrolls.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from pronk.losses.corrections import uncorrected, vtrace
from pronk.plotting.figures import styled

PICTURE = Path(__file__).parent / "pictures" / "vtrace.png"
STATES, START, DISCOUNT = 7, 3, 0.95
PREFERENCE, PER_UPDATE = 1.5, 0.25  # of the learner's policy, as a logit; what it gained by each update
LAGS = range(0, 11)
UNROLL, COLUMNS, SWEEPS, SEED = 20, 3000, 40, 1
BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#6b6b6b"


def policy(lag: float) -> np.ndarray:
    """Return the probabilities of left and right, the same in every state, of the policy of `lag` updates ago."""
    right = 1 / (1 + np.exp(-(PREFERENCE - PER_UPDATE * lag)))
    return np.array([1 - right, right])


def clipped_policy(lag: float, rho_bar: float | None) -> np.ndarray:
    """Return the policy whose values V-trace converges to (section 4.1 of the paper), which lies between the two."""
    target, behaviour = policy(0), policy(lag)
    weights = target if rho_bar is None else np.minimum(rho_bar * behaviour, target)
    return weights / weights.sum()


def values_of(probabilities: np.ndarray) -> np.ndarray:
    """Solve Bellman's equation: the true values of a policy, one per state."""
    left, right = probabilities
    moves = np.diag(np.full(STATES - 1, right), 1) + np.diag(np.full(STATES - 1, left), -1)
    reward = np.zeros(STATES)
    reward[-1] = right
    return np.linalg.solve(np.eye(STATES) - DISCOUNT * moves, reward)


def unrolls(lag: float, seed: int) -> dict[str, Any]:
    """Sample unrolls of the old policy, from every state alike: states [T+1, B], the rest [T, B]."""
    random = np.random.default_rng(seed)
    behaviour, target = policy(lag), policy(0)
    states = np.empty((UNROLL + 1, COLUMNS), np.int64)
    states[0] = random.integers(STATES, size=COLUMNS)
    actions = (random.random((UNROLL, COLUMNS)) < behaviour[1]).astype(np.int64)
    reward, discount = np.zeros((2, UNROLL, COLUMNS), np.float32)
    for t in range(UNROLL):
        moved = states[t] + 2 * actions[t] - 1
        over = (moved < 0) | (moved >= STATES)
        reward[t], discount[t] = moved >= STATES, np.where(over, 0, DISCOUNT)
        states[t + 1] = np.where(over, random.integers(STATES, size=COLUMNS), moved)
    log_rho = np.log(target[actions] / behaviour[actions]).astype(np.float32)
    tensors = {"log_rho": log_rho, "discount": discount, "reward": reward}
    return {"states": states, **{name: torch.from_numpy(array) for name, array in tensors.items()}}


def targets(data: dict[str, Any], values: np.ndarray, correct: Any, **bars: float | None) -> np.ndarray:
    """Return the targets [T, B] of sampled unrolls, given values of the states."""
    known = torch.from_numpy(values.astype(np.float32)[data["states"]])
    inputs = (data["log_rho"], data["discount"], data["reward"], known[:-1], known[-1])
    return correct(*inputs, **bars).value.numpy()


def sweeps(data: dict[str, Any], correct: Any, count: int = SWEEPS, **bars: float | None) -> list[np.ndarray]:
    """Replace the values by the mean targets of each state, again and again, beginning at zero."""
    values, visited = [np.zeros(STATES)], data["states"][:-1]
    visits = np.bincount(visited.ravel(), minlength=STATES)
    for _ in range(count):
        found = targets(data, values[-1], correct, **bars)
        values.append(np.bincount(visited.ravel(), found.ravel(), STATES) / visits)
    return values


def draw_fixed_points(axis: Any) -> None:
    """Where the values end up, over the lag."""
    lags = np.linspace(0, max(LAGS), 101)
    axis.axhline(values_of(policy(0))[START], color="black", linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axis.annotate("true value", (0.2, values_of(policy(0))[START]), (0, 4), textcoords="offset points", fontsize=8)
    kinds = ((None, vtrace, BLUE, "rho_bar = none"), (1.0, vtrace, ORANGE, "rho_bar = 1"))
    for bar, correct, colour, name in (*kinds, (0.0, uncorrected, GREY, "not corrected")):
        policies = [policy(lag) if correct is uncorrected else clipped_policy(lag, bar) for lag in lags]
        axis.plot(lags, [values_of(each)[START] for each in policies], color=colour, label=name)
        bars = {} if correct is uncorrected else {"rho_bar": bar, "c_bar": 1.0}
        ends = [sweeps(unrolls(lag, SEED), correct, **bars)[-1][START] for lag in LAGS]
        axis.plot(list(LAGS), ends, "o", color=colour, markersize=3.5)
    axis.set(title="Value of the middle state", xlabel="lag (updates)", ylim=(0, None))
    axis.legend(frameon=False, loc="lower left")


def draw_spread(axis: Any) -> None:
    """How much a single target scatters, over the lag."""
    values = values_of(policy(0))
    kinds = ((None, None, BLUE, "rho_bar = c_bar = none"), (None, 1.0, GREEN, "rho_bar = none, c_bar = 1"))
    for rho_bar, c_bar, colour, name in (*kinds, (1.0, 1.0, ORANGE, "rho_bar = c_bar = 1")):
        spread = []
        for lag in LAGS:
            data = unrolls(lag, SEED)
            first = targets(data, values, vtrace, rho_bar=rho_bar, c_bar=c_bar)[0]
            spread.append(first[data["states"][0] == START].std())
        axis.plot(list(LAGS), spread, "o-", color=colour, markersize=3.5, label=name)
    axis.set(title="Standard deviation of a target", xlabel="lag (updates)", ylim=(0, None))
    axis.legend(frameon=False, loc="upper left")


def draw_speed(axis: Any, lag: int = 4) -> None:
    """How far the values are from where they end up, after each sweep."""
    goal, data = values_of(clipped_policy(lag, 1.0)), unrolls(lag, SEED)
    ended = sweeps(data, vtrace, 4 * SWEEPS, rho_bar=1.0, c_bar=1.0)[-1]  # of these samples, near the exact one
    assert np.abs(ended - goal).max() < 0.05
    for c_bar, colour in ((0.05, BLUE), (0.5, GREEN), (1.0, ORANGE)):
        values = sweeps(data, vtrace, 15, rho_bar=1.0, c_bar=c_bar)
        ended = sweeps(data, vtrace, 4 * SWEEPS, rho_bar=1.0, c_bar=c_bar)[-1]
        errors = [np.abs(each - ended).max() for each in values]
        axis.plot(errors, "o-", color=colour, markersize=3.5, label=f"c_bar = {c_bar:g}")
    axis.set(title=f"Largest error left (lag {lag})", xlabel="sweeps over the data")
    axis.set(ylim=(0, None), xticks=range(0, 16, 3))
    axis.legend(frameon=False, loc="upper right")


def main() -> None:
    """Draw the three panels."""
    with styled():
        figure = Figure(figsize=(10, 3.3), layout="constrained")
        for axis, draw in zip(figure.subplots(1, 3), (draw_fixed_points, draw_spread, draw_speed), strict=True):
            draw(axis)
        figure.savefig(PICTURE, dpi=160)
    print(PICTURE)


if __name__ == "__main__":
    main()
