"""Checks on arrays from other machines: only values that a correct actor can send may reach a batch."""

from __future__ import annotations

import math

import numpy as np

from pronk.types import ArraySpec, Tree, Unroll, leaves

MAY_BE_NAN = ("episode_return",)  # NaN: no episode ended at this step
LARGEST = 1e12  # its square, and the sum of a batch of these, are still finite in float32
ORDINARY = 1e6  # values up to this are always accepted, whatever the others send
FACTOR = 1e4  # times the largest value of the others: the largest that is accepted


class InvalidUnroll(Exception):  # noqa: N818 - not an error of this process
    """Values of an unroll, or of observations to act on. The message names the field and what is wrong with it."""


def validate_unroll(unroll: Unroll, specs: Tree, newest: int) -> None:
    """Raise `InvalidUnroll` for the first impossible value. `newest` is the version that the learner published last."""
    validate_arrays(unroll._asdict(), specs)
    between(unroll.discount, 0, 1, "discount")
    between(unroll.version, 0, newest, "version")
    between(unroll.environment, 0, None, "environment")
    between(unroll.episode_length, 0, None, "episode_length")
    if specs["action"].categories:
        between(unroll.log_prob, None, 1e-3, "log_prob")  # of a choice; of a real number it is a density


def validate_arrays(tree: Tree, specs: Tree) -> None:
    """Raise `InvalidUnroll` for the first value that its array cannot have."""
    for (name, array), (_, spec) in zip(leaves(tree), leaves(specs), strict=True):
        if spec.dtype == "bool":
            refuse_unless(bool((array.view(np.uint8) <= 1).all()), name, "a byte that is neither true nor false")
        elif array.dtype.kind == "f":
            may_be_nan = name in MAY_BE_NAN or name.startswith("info/")
            fine = np.isfinite(array) | np.isnan(array) if may_be_nan else np.isfinite(array)
            refuse_unless(bool(fine.all()), name, "a value that is not finite")
        if spec.categories:
            refuse_unless(within(array, spec), name, f"a label that is not one of {spec.categories}")
        if spec.words:
            between(array, 0, spec.words, name)


class Magnitudes:
    """The largest rewards, returns, observations and states that each actor has sent.

    One finite value of 1e18 makes a loss infinite. So a value that is far beyond those of all other actors is refused,
    and so is any value beyond LARGEST.
    """

    def __init__(self) -> None:
        self._largest: dict[int, dict[str, float]] = {}  # by actor, then by field

    def check(self, unroll: Unroll, actor: int) -> None:
        """Raise `InvalidUnroll` for a value that is far too large; otherwise remember the largest ones."""
        seen = {name: largest_of(array) for name, array in leaves(unroll._asdict()) if name.startswith(COMPARED)}
        others = [largest for one, largest in self._largest.items() if one != actor]
        for name, value in seen.items():
            theirs = max((largest[name] for largest in others), default=None)
            most = LARGEST if theirs is None else min(LARGEST, max(ORDINARY, FACTOR * theirs))
            compared = "" if theirs is None else f", where the others sent {theirs:g} at most"
            refuse_unless(value <= most, name, f"{value:g}{compared}")
        before = self._largest.setdefault(actor, dict.fromkeys(seen, 0.0))
        for name, value in seen.items():
            before[name] = max(before[name], value)


COMPARED = ("reward", "episode_return", "observation", "state")  # beginnings of the names of fields


def largest_of(array: np.ndarray) -> float:
    """Return the largest magnitude of floating-point numbers, NaN apart; 0 for other kinds."""
    if array.dtype.kind != "f" or not array.size:
        return 0.0
    # NaN only if all are. With keepdims the result is an array in every version of NumPy's types.
    high = np.fmax.reduce(array, axis=None, keepdims=True).item()
    low = np.fmin.reduce(array, axis=None, keepdims=True).item()
    return 0.0 if math.isnan(high) else max(high, -low)


def within(array: np.ndarray, spec: ArraySpec) -> bool:
    """Return whether labels are from 0 to below their number of classes."""
    labels = array.reshape(-1, len(spec.categories))
    return bool((labels >= 0).all() and (labels < np.asarray(spec.categories)).all())


def between(array: np.ndarray, low: float | None, high: float | None, name: str) -> None:
    refuse_unless(low is None or bool((array >= low).all()), name, f"a value below {low}")
    refuse_unless(high is None or bool((array <= high).all()), name, f"a value above {high}")


def refuse_unless(fine: bool, name: str, found: str) -> None:
    if not fine:
        raise InvalidUnroll(f"{name} holds {found}")
