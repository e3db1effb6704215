"""What happened: counters that add up over resumes, means and rates since the last line."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pronk.types import Unroll

WINDOW = 100  # finished episodes that `episode_return` averages


class Episode(NamedTuple):
    """One that ended."""

    step: int  # of its batch
    value: float  # its return
    length: int


class Experience(NamedTuple):
    """What a batch adds to the counters."""

    steps: int  # valid ones
    ended: int
    episodes: list[Episode]  # the last of those that ended, by step
    lag: float  # in updates, mean over the columns
    fresh: bool  # not learnt from before: experience counts once, however often it is learnt from

    @classmethod
    def of(cls, unroll: Unroll, version: int, fresh: bool = True) -> Experience:
        """A batch (NumPy), and the version that it updates."""
        ended = ~np.isnan(unroll.episode_return)
        episodes: list[Episode] = []
        if ended.any():
            steps, values, lengths = np.nonzero(ended)[0], unroll.episode_return[ended], unroll.episode_length[ended]
            last = (array[-WINDOW:].tolist() for array in (steps, values, lengths))
            episodes = [Episode(*each) for each in zip(*last, strict=True)]
        lag = version - float(unroll.version.mean())
        return cls(int(np.count_nonzero(unroll.valid)), int(np.count_nonzero(ended)), episodes, lag, fresh)

    @classmethod
    def merged(cls, parts: Sequence[Experience]) -> Experience:
        """As if the batches, all of one size, had been one."""
        episodes = sorted((episode for part in parts for episode in part.episodes), key=lambda episode: episode.step)
        return cls(
            steps=sum(part.steps for part in parts),
            ended=sum(part.ended for part in parts),
            episodes=episodes[-WINDOW:],
            lag=sum(part.lag for part in parts) / len(parts),
            fresh=parts[0].fresh,
        )


class Metrics:
    """Fed by the training loop at every update; asked for a line about once a second."""

    def __init__(self, frames_per_step: int) -> None:
        self.env_steps = self.updates = self.episodes = 0
        self.barren_updates = 0  # in a row without a valid step
        self._returns: deque[float] = deque(maxlen=WINDOW)
        self._lengths: deque[int] = deque(maxlen=WINDOW)
        self._frames_per_step = frames_per_step
        self._earlier_seconds = 0.0
        self._started = self._lined = time.perf_counter()
        self._steps_at_line = 0
        self._sums: dict[str, float] = {}
        self._count = 0
        self._waited = 0.0
        self.learning_rate = self.entropy_cost = 0.0  # of the last update
        self.queue = 0.0  # share of the actors' slots that are filled
        self.lags: Counter[int] = Counter()  # columns learnt from, by how many updates old they were
        self._last: dict[str, Any] = {}

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Around the learner's wait for a batch."""
        began = time.perf_counter()
        yield
        self._waited += time.perf_counter() - began

    def record(self, experience: Experience, report: dict[str, float]) -> None:
        """One update: what its batch held, and the learner's report."""
        self.updates += 1
        if experience.fresh:
            self.env_steps += experience.steps
            self.barren_updates = 0 if experience.steps else self.barren_updates + 1
            self.episodes += experience.ended
            self._returns.extend(episode.value for episode in experience.episodes)
            self._lengths.extend(episode.length for episode in experience.episodes)
        self._count += 1
        for name, value in (report | {"policy_lag": experience.lag}).items():
            self._sums[name] = self._sums.get(name, 0.0) + value

    @property
    def episode_return(self) -> float | None:
        """Mean of the last episodes, raw; None before the first has ended."""
        return float(np.mean(self._returns)) if self._returns else None

    @property
    def standing(self) -> tuple[bool, float] | None:
        """For finding the best: whether 100 episodes have ended, and the mean return. A few lucky ones count less."""
        value = self.episode_return
        return None if value is None else (len(self._returns) == WINDOW, value)

    def reached(self, goal: float | None) -> bool:
        """Whether a full window of episodes has this mean."""
        return goal is not None and len(self._returns) == WINDOW and sum(self._returns) >= goal * WINDOW

    @property
    def wall_seconds(self) -> float:
        """Spent training, over all resumes."""
        return self._earlier_seconds + time.perf_counter() - self._started

    def seconds_since_line(self) -> float:
        """How old the last line is."""
        return time.perf_counter() - self._lined

    def line(self) -> dict[str, Any]:
        """The state of affairs, and means since the last line."""
        if self._count == 0 and self._last:
            return self._last
        seconds = self.seconds_since_line()
        means: dict[str, float | None] = {name: total / self._count for name, total in self._sums.items()}
        self._last = {
            "wall_seconds": round(self.wall_seconds, 3),
            "env_steps": self.env_steps,
            "frames": self.env_steps * self._frames_per_step,
            "updates": self.updates,
            "episodes": self.episodes,
            "episode_return": self.episode_return,
            "episode_return_std": float(np.std(self._returns)) if self._returns else None,
            "episode_length": float(np.mean(self._lengths)) if self._lengths else None,
            "steps_per_second": round((self.env_steps - self._steps_at_line) / seconds, 1),
            **{name: means.pop(name, None) for name in ("policy_lag", "loss", "entropy")},
            **means,
            "learning_rate": self.learning_rate,
            "entropy_cost": self.entropy_cost,
            "learner_waits": round(min(1.0, self._waited / seconds), 4),
            "queue": round(self.queue, 4),
        }
        self._lined, self._steps_at_line = time.perf_counter(), self.env_steps
        self._sums.clear()
        self._count, self._waited = 0, 0.0
        return self._last

    def state(self) -> dict[str, Any]:
        """For the checkpoint."""
        return {
            "env_steps": self.env_steps,
            "updates": self.updates,
            "episodes": self.episodes,
            "returns": list(self._returns),
            "lengths": list(self._lengths),
            "wall_seconds": self.wall_seconds,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from `state()`."""
        self.env_steps, self.updates, self.episodes = state["env_steps"], state["updates"], state["episodes"]
        self._returns.extend(state["returns"])
        self._lengths.extend(state["lengths"])
        self._earlier_seconds = state["wall_seconds"]
        self._steps_at_line = self.env_steps
