"""What all drivers share: their command line, their clock, and how a policy for CartPole is judged.

Imported in every peer's virtual environment, so it needs the standard library only, and gymnasium where CartPole is
played. The clock starts when the runner starts the program: importing and starting count.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

BEGAN = time.monotonic()  # for a driver that is started by hand
GOAL = 475.0  # CartPole-v1's own reward threshold
EVALUATED = 100  # episodes
WINDOW = {"solve": 100, "halfcheetah": 20}  # episodes of the mean return; HalfCheetah's have 1000 steps each
HELD_OUT = 10_000  # seed of the evaluation


class Task(NamedTuple):
    """One run, as the runner asks for it."""

    work: str
    seed: int
    seconds: float
    """How long to measure after the warm-up (cartpole, pong), or to train from the first update (halfcheetah)."""
    warmup: float
    """Seconds between the first update and the measurement."""
    limit: float
    """solve: give up so many seconds after the start."""
    began: float
    """time.monotonic() when the program was started."""
    envs: int
    """cartpole: how many environments in all, alike for everybody. The other works have the peer's own number."""
    folder: Path
    """For what the peer writes. The runner deletes it."""
    checkout: Path | None
    algorithm: str | None


def parse(algorithms: Iterable[str] = ()) -> Task:
    """Read a driver's command line."""
    parser = argparse.ArgumentParser()
    if algorithms:
        parser.add_argument("algorithm", choices=list(algorithms))
    parser.add_argument("work", choices=["cartpole", "solve", "pong", "halfcheetah"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warmup", type=float, default=3.0)
    parser.add_argument("--limit", type=float, default=120.0)
    parser.add_argument("--began", type=float, default=BEGAN)
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--checkout", type=Path)
    return Task(**{"algorithm": None} | vars(parser.parse_args()))


class Meter:
    """Tells a driver when to stop, and what was measured until then. Called after each update.

        while not meter.updated(trained_steps, finished_returns): ...

    cartpole, pong: the warm-up, then the seconds to measure. solve: until the mean of the last 100 episodes is 475.
    halfcheetah: the seconds to train.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._first: float | None = None
        self._mark: tuple[float, int] | None = None
        self._returns: deque[float] = deque(maxlen=WINDOW.get(task.work, 100))
        self._mean: float | None = None
        self._solved = False
        self._steps = 0
        self._end = 0.0

    def finished(self, returns: Iterable[float]) -> None:
        """Note the returns of episodes that ended while training."""
        self._returns.extend(float(one) for one in returns)

    def averaged(self, mean: float) -> None:
        """Note the mean return of the last episodes, for a peer that keeps it itself."""
        self._mean = mean

    def _mean_return(self) -> float | None:
        """Return the mean of the last episodes; for CartPole, once there are a hundred."""
        enough = self._returns if self._task.work == "halfcheetah" else len(self._returns) == self._returns.maxlen
        return statistics.fmean(self._returns) if enough and self._mean is None else self._mean

    def updated(self, steps: int, returns: Iterable[float] = (), at: float | None = None) -> bool:
        """Note that `steps` have been trained on in all (`at` that time, if not now), and say whether it is enough."""
        now = time.monotonic() if at is None else at
        self.finished(returns)
        if steps <= 0 or steps == self._steps:  # nothing trained since
            return self._task.work == "solve" and now - self._task.began >= self._task.limit
        self._steps, self._end = steps, now
        self._first = now if self._first is None else self._first
        if self._task.work == "solve":
            self._solved = (self._mean_return() or 0.0) >= GOAL
            return self._solved or now - self._task.began >= self._task.limit
        warm = 0.0 if self._task.work == "halfcheetah" else self._task.warmup
        if self._mark is None and now - self._first >= warm:
            self._mark = (now, steps)
        return self._mark is not None and now - self._mark[0] >= self._task.seconds

    def result(self) -> dict[str, Any]:
        """What was measured, as the driver reports it."""
        if self._first is None:
            raise RuntimeError("no update before the end")
        found: dict[str, Any] = {
            "startup_seconds": round(self._first - self._task.began, 2),
            "steps": self._steps,
        }
        if self._task.work == "solve":
            return found | {"reached": self._solved, "solve_seconds": round(self._end - self._task.began, 2)}
        if self._mark is None or self._mark[0] == self._end:
            raise RuntimeError("the end before anything was measured")
        began, before = self._mark
        found |= {"measured_steps": self._steps - before, "measured_seconds": round(self._end - began, 3)}
        if self._task.work == "halfcheetah":
            mean = self._mean_return()
            if mean is None:
                raise RuntimeError("no episode has ended")
            return found | {"return": mean}
        return found | {"steps_per_second": (self._steps - before) / (self._end - began)}


def play_cartpole(act: Callable[[np.ndarray, bool], np.ndarray]) -> dict[str, float]:
    """Play 100 episodes at once with a policy: mean returns with sampled and with the likeliest actions.

    `act(observations [N, 4] float32, deterministic)` returns N actions. Nobody's vector environment is used, so that
    all policies are judged by the same code.
    """
    import gymnasium as gym
    import numpy as np

    means = {}
    for name, deterministic in [("sampled", False), ("deterministic", True)]:
        envs = [gym.make("CartPole-v1") for _ in range(EVALUATED)]
        observation = np.stack([env.reset(seed=HELD_OUT + i)[0] for i, env in enumerate(envs)])
        returns, playing = np.zeros(EVALUATED), np.ones(EVALUATED, dtype=bool)
        while playing.any():
            actions = np.asarray(act(observation, deterministic))
            for i in np.flatnonzero(playing):
                observation[i], reward, terminated, truncated, _ = envs[i].step(int(actions[i]))
                returns[i] += float(reward)
                playing[i] = not (terminated or truncated)
        means[name] = float(returns.mean())
    return means


def report(meter: Meter, packages: Iterable[str], **more: Any) -> None:
    """Print what the meter has, and `more`, as the driver's result."""
    print_result(meter.result() | more, packages)


def print_result(found: dict[str, Any], packages: Iterable[str]) -> None:
    """Print one JSON object with the versions of these packages. Nothing may be printed after it."""
    versions = {name: importlib.metadata.version(name) for name in packages}
    print("\n" + json.dumps(found | {"versions": versions}), flush=True)


def leave() -> None:
    """End at once, for peers whose threads or processes take long to end. The runner ends what is left of them."""
    os._exit(0)
