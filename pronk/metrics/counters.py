"""The numbers of metrics.jsonl: counters that add up over resumes, and means and rates since the last line."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pronk.metrics.experience import Experience, Played
from pronk.metrics.returns import Estimate
from pronk.metrics.task_returns import TaskConfirmation, TaskReturns, mean_of
from pronk.types import Array

COUNTED_AT_ONCE = 8  # batches: see `Played`


class Metrics:
    """Counts what the training loop reports at every update, and makes a line of metrics about once a second."""

    def __init__(
        self,
        frames_per_step: int,
        tasks: Sequence[str] = ("default",),
        scores: Callable[[list[float | None]], dict[str, float]] = lambda returns: {},
    ) -> None:
        """`scores` makes further columns from the returns of the tasks, if there are several."""
        self.env_steps = self.updates = self._episodes = 0
        self.barren_updates = 0  # in a row without a valid step
        self._returns, self._scores = TaskReturns(tasks), scores
        self.confirmed: list[Estimate] | None = None  # of the present weights, for each task
        self._frames_per_step = frames_per_step
        self._earlier_seconds = 0.0
        self._started = self._line_at = time.perf_counter()
        self._steps_at_line = 0
        self._sums: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._waited = 0.0
        self.learning_rate = self.entropy_cost = self.progress = 0.0  # of the last update
        self.queue = 0.0  # share of the actors' slots that are filled
        self.lags: Counter[int] = Counter()  # fresh columns, by how many updates old they were, up to the last line
        self.replay_lags: Counter[int] = Counter()  # likewise, columns that had been learnt from before
        self._uncounted: list[tuple[Experience | Played, dict[str, float]]] = []
        self._uncounted_lags: list[tuple[Array, Array]] = []
        self._last: dict[str, Any] = {}

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Measure the learner's wait for a batch, in a `with` block."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._waited += time.perf_counter() - began

    def record(self, played: Experience | Played, report: dict[str, float]) -> None:
        """Count one update: what its batch held, and the learner's report."""
        self.updates += 1
        self.confirmed = None
        if played.is_fresh:
            self.env_steps += played.steps
            self.barren_updates = 0 if played.steps else self.barren_updates + 1
        self._uncounted.append((played, report))
        if len(self._uncounted) >= COUNTED_AT_ONCE:
            self._catch_up()

    def _catch_up(self) -> None:
        """Count all but the steps."""
        for played, report in self._uncounted:
            experience = played.counted()
            if fresh := len(experience.columns):
                self._episodes += experience.ended
                self._returns.record(experience.columns, experience.episodes, experience.length)
                self._add("policy_lag", experience.lag, fresh)
            for name, (total, given) in experience.info.items():
                if given:
                    self._add(f"info/{name}", total / given, given)
            if experience.replayed:
                self._add("replay_lag", experience.replay_lag, experience.replayed)
            for name, value in report.items():
                self._add(name, value)
        self._uncounted.clear()
        for lags, fresh_columns in self._uncounted_lags:
            self.lags.update(lags[fresh_columns].tolist())
            self.replay_lags.update(lags[~fresh_columns].tolist())
        self._uncounted_lags.clear()

    def _add(self, name: str, value: float, weight: int = 1) -> None:
        self._sums[name] += value * weight  # type: ignore[assignment]
        self._counts[name] += weight

    def count_lags(self, lags: Array, fresh: Array) -> None:
        """Add the ages of a batch's columns, in updates, to the histograms."""
        self._uncounted_lags.append((lags, fresh))

    @property
    def episodes(self) -> int:
        """Episodes that have ended."""
        self._catch_up()
        return self._episodes

    @property
    def episode_return(self) -> float | None:
        """Raw return of an episode; see `returns.py`. None before the first has ended."""
        estimate = self._estimate
        return estimate.value if estimate else None

    @property
    def _estimate(self) -> Estimate | None:
        self._catch_up()
        return mean_of(self.confirmed) if self.confirmed else self._returns.estimate()

    @property
    def standing(self) -> tuple[bool, float] | None:
        """To compare policies: whether enough episodes have ended, then their return, so a few lucky ones rank low."""
        estimate = self._estimate
        return (estimate.full, estimate.value) if estimate else None

    def reached(self, goal: float | None) -> bool:
        """Return whether enough episodes have ended, and their return is at least `goal`.

        Unless `confirmed` is set, they were played while the weights changed.
        """
        standing = self.standing
        return goal is not None and standing is not None and standing >= (True, goal)

    def confirmation(self) -> TaskConfirmation:
        """Start to measure the return of the present weights."""
        self._catch_up()
        return self._returns.confirmation()

    def observe(self, experience: Experience) -> None:
        """Add episodes of weights that are held. Nothing is learnt from them: steps and episodes are not counted."""
        self._catch_up()
        self._returns.record(experience.columns, experience.episodes, experience.length)

    @property
    def wall_seconds(self) -> float:
        """Seconds of training, over all resumes."""
        return self._earlier_seconds + time.perf_counter() - self._started

    def seconds_since_line(self) -> float:
        """How old the last line is."""
        return time.perf_counter() - self._line_at

    def line(self) -> dict[str, Any]:
        """Return the counters, and means since the last line. If nothing has happened since, the last line itself."""
        self._catch_up()
        if not self._counts and self._last:
            now = self._return_metrics()
            if any(self._last[name] != value for name, value in now.items()):  # held weights were confirmed since
                self._last = {**self._last, "wall_seconds": round(self.wall_seconds, 3), **now}
            return self._last
        seconds = self.seconds_since_line()
        means: dict[str, float | None] = {name: total / self._counts[name] for name, total in self._sums.items()}
        self._last = {
            **self.counters(),
            "steps_per_second": round((self.env_steps - self._steps_at_line) / seconds, 1),
            # With several passes there may be no fresh column since the last line: keep that line's lag.
            "policy_lag": means.pop("policy_lag", self._last.get("policy_lag")),
            **{name: means.pop(name, None) for name in ("loss", "entropy")},
            **means,
            "learning_rate": self.learning_rate,
            "entropy_cost": self.entropy_cost,
            "progress": round(self.progress, 6),
            "learner_waits": round(min(1.0, self._waited / seconds), 4),
            "queue": round(self.queue, 4),
        }
        self._line_at, self._steps_at_line = time.perf_counter(), self.env_steps
        self._sums.clear()
        self._counts.clear()
        self._waited = 0.0
        return self._last

    def counters(self) -> dict[str, Any]:
        """Return the part of a line that is known at any time: all that is not a mean or rate since the last one."""
        return {
            "wall_seconds": round(self.wall_seconds, 3),
            "env_steps": self.env_steps,
            "frames": self.env_steps * self._frames_per_step,
            "updates": self.updates,
            "episodes": self.episodes,
            **self._return_metrics(),
        }

    def leave_out(self, seconds: float) -> None:
        """Do not count time that has passed: training was paused."""
        self._started += seconds
        self._line_at += seconds

    def _return_metrics(self) -> dict[str, float | None]:
        estimate = self._estimate
        return {
            "episode_return": estimate.value if estimate else None,
            "episode_return_std": self._returns.std(),
            "episode_length": estimate.length if estimate else None,
            **self._task_columns(),
        }

    def _task_columns(self) -> dict[str, float | None]:
        """Return the return of each task, if there are several, and what follows from them."""
        names = self._returns.names
        if len(names) == 1:
            return {}
        values = [each.value if each else None for each in self.confirmed or self._returns.estimates()]
        columns = {f"episode_return/{name}": value for name, value in zip(names, values, strict=True)}
        return columns | self._scores(values)

    def state(self) -> dict[str, Any]:
        """For the checkpoint."""
        self._catch_up()
        return {
            "env_steps": self.env_steps,
            "updates": self.updates,
            "episodes": self.episodes,
            "returns": self._returns.state(),
            "confirmed": self.confirmed and [tuple(each) for each in self.confirmed],
            "wall_seconds": self.wall_seconds,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from `state()`."""
        self._catch_up()
        self.env_steps, self.updates, self._episodes = state["env_steps"], state["updates"], state["episodes"]
        if "lengths" not in state:  # Pronk 0.1 wrote them; it did not save which environment a return came from
            self._returns.load_state(state["returns"])
        if confirmed := state.get("confirmed"):
            several = isinstance(confirmed[0], list | tuple)  # else it is an earlier version's, of its only task
            self.confirmed = [Estimate(*each) for each in (confirmed if several else [confirmed])]
        self._earlier_seconds, self._started = state["wall_seconds"], time.perf_counter()
        self._steps_at_line = self.env_steps

    def take_over(self, state: dict[str, Any]) -> None:
        """Continue from another learner's `state()`, or from one's own: afterwards both count alike.

        What the present line has summed up so far is kept.
        """
        steps_since_line = self.env_steps - self._steps_at_line
        self.load_state(state)
        self.confirmed, self.barren_updates = None, 0
        self._steps_at_line = self.env_steps - steps_since_line
