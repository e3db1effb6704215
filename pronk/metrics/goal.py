"""When a run is solved: its return has reached `run.stop_return`, and this was confirmed.

    training --return reaches the goal--> weights held --whole episodes agree--> evaluator agrees --> solved
       ^--------------------------- one of them does not agree ------------------------'

The return that training reports is of many policies, each a little older than the next. So the weights are held until
every environment has begun and ended an episode with them (returns.py says why that is enough). Those episodes come
from actors, perhaps of other machines. If there is an evaluator, it must agree as well. An evaluator that does not
answer within `evaluation.final_seconds`, or has failed for good, counts as agreeing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pronk.config import ResolvedConfig
from pronk.metrics.counters import COUNTED_AT_ONCE, Metrics
from pronk.metrics.experience import Experience
from pronk.metrics.task_returns import TaskConfirmation, mean_of

MOST_DOUBLINGS = 10  # of the pause after a refusal


class Goal:
    """`run.stop_return`, and how far its confirmation is."""

    def __init__(self, config: ResolvedConfig, metrics: Metrics, say: Callable[[str], None]) -> None:
        self.config, self._metrics, self._say = config, metrics, say
        self._confirmation: TaskConfirmation | None = None
        self._confirm_from = 0  # steps
        self._refused = 0  # times that the evaluator did not agree

    @property
    def is_being_confirmed(self) -> bool:
        """Whether the weights are held: batches are played, but nothing is learnt from them."""
        return self._confirmation is not None

    def look(self) -> None:
        """Begin a confirmation if the return has reached the goal. Called after every update."""
        metrics = self._metrics
        if (
            metrics.updates % COUNTED_AT_ONCE == 0
            and metrics.reached(self.config.run.stop_return)
            and metrics.env_steps >= self._confirm_from
        ):
            self._confirmation = metrics.confirmation()

    def confirm(self, played: Experience, evaluation_agrees: Callable[[], bool | None] | None) -> None:
        """Count a batch that was played with the held weights, and decide when there are enough episodes.

        Args:
            played: the batch.
            evaluation_agrees: asks the evaluator; None if there is none. It returns None if the group of learners
                formed again meanwhile, so that the confirmation has to begin anew.
        """
        metrics, confirmation, goal = self._metrics, self._confirmation, self.config.run.stop_return
        assert confirmation is not None, "else the batch is learnt from"
        metrics.observe(played)
        confirmation.record(played.columns, played.episodes, played.length)
        metrics.confirmed = confirmation.estimates()
        estimate = mean_of(metrics.confirmed) if metrics.confirmed else None
        if estimate is None:
            return
        self._confirmation = None
        if not metrics.reached(goal):
            self._confirm_from = metrics.env_steps + confirmation.steps  # at most half of the time goes into this
            self._say(
                f"return {goal:g} not confirmed: {estimate.value:.4g}, the mean of {estimate.episodes} episodes of the "
                "present policy; training continues"
            )
        elif evaluation_agrees and not (agreed := evaluation_agrees()):
            metrics.confirmed = None
            if agreed is None:
                return
            self._refused += 1
            # Actors and evaluator disagree. Ask less and less often, because an evaluation holds up training.
            self._confirm_from = metrics.env_steps + (confirmation.steps << min(self._refused, MOST_DOUBLINGS))

    def agrees_with(self, evaluation: dict[str, Any]) -> bool:
        """Return whether a line of the evaluator's does not contradict that the goal is reached."""
        goal = self.config.run.stop_return
        assert goal is not None, "else nothing is confirmed"
        mean, std = (math.nan if evaluation[name] is None else evaluation[name] for name in ("mean", "std"))
        if mean + 2 * std / math.sqrt(evaluation["episodes"]) >= goal:  # within two standard errors: no contradiction
            return True
        self._say(
            f"return {goal:g} not confirmed: {mean:.4g}, the mean of the evaluator's "
            f"{evaluation['episodes']} episodes, but {self._metrics.episode_return:.4g} as actors report it; "
            "training continues"
        )
        return False

    def state(self) -> dict[str, int]:
        """Return what all learners of a group have to agree on."""
        return {"confirm_from": self._confirm_from, "refused": self._refused}

    def take_over(self, state: dict[str, int]) -> None:
        """Continue from another learner's `state`, without a confirmation under way."""
        self._confirmation = None
        self._confirm_from, self._refused = state["confirm_from"], state["refused"]
