"""Environments for the chaos suite that misbehave once training is under way, and what a run says about each."""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

import numpy as np
from faulty import Corridor

BIG = b"nothing to see here\n" * 50_000
SETTINGS = (
    "actors.count=1",
    "actors.envs=2",
    "actors.unroll_length=10",
    "learner.batch_size=2",
    "learner.passes=1",
    "actors.max_failures=2",
    "run.stop_return=null",
    "run.total_steps=6000",
)
LATE = 400  # steps, after which it happens


class Late(Corridor):
    """Well-behaved until it is time."""

    def __init__(self) -> None:
        super().__init__(LATE)

    def step(self, action: np.int64) -> Any:
        if self._is_time:
            self.misbehave()
        return super().step(action)

    def misbehave(self) -> None:
        """In one way."""


class Raises(Late):
    def misbehave(self) -> None:
        raise RuntimeError("the wheel came off")


class Hangs(Late):
    def misbehave(self) -> None:
        time.sleep(3600)


class Segfaults(Late):
    def misbehave(self) -> None:
        ctypes.string_at(0)


class Exits(Late):
    def misbehave(self) -> None:
        os._exit(7)


class Floods(Late):
    """A megabyte to standard output at every step."""

    def misbehave(self) -> None:
        if self._steps < LATE + 100:
            os.write(1, BIG)


class IsNaN(Late):
    def _reward(self) -> float:
        return float("nan") if self._is_time else 1.0


class IsHuge(Late):
    def _reward(self) -> float:
        return 1e30 if self._is_time else 1.0


class ChangesShape(Late):
    def _see(self) -> np.ndarray:
        return np.zeros(4 if self._is_time else 3, np.float32)


class ClosesSlowly(Late):
    def close(self) -> None:
        time.sleep(3600)


# Name of the class: what it does, further settings, and what the run says; None: the run finishes.
ENVIRONMENTS: dict[str, tuple[str, tuple[str, ...], str | None]] = {
    "Raises": ("an environment raises", SETTINGS, "the wheel came off"),
    "Hangs": ("an environment hangs", (*SETTINGS, "actors.timeout_seconds=5"), "no unroll for 5 s"),
    "Segfaults": ("an environment segfaults", SETTINGS, "SIGSEGV"),
    "Exits": ("an environment exits", SETTINGS, "exit code 7"),
    "Floods": ("an environment floods its output", SETTINGS, None),
    "IsNaN": ("an environment returns NaN", SETTINGS, "nan in its reward"),
    "IsHuge": ("an environment returns 1e30", SETTINGS, "loss is"),
    "ChangesShape": ("an environment changes the shape", SETTINGS, "its observation space says (3,)"),
    "ClosesSlowly": ("an environment does not close", SETTINGS, None),
}
