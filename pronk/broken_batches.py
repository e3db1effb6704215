"""Handles a batch whose loss or gradient is not finite: saves it, and drops it or ends the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pronk.config.resolved import ResolvedConfig
from pronk.learner import Learner, NonFinite
from pronk.learners import LearnerGroup
from pronk.runs.broken_batch import keep_broken_batch
from pronk.types import Failure


class BrokenGradient(Failure):
    """A loss or gradient was not finite. No checkpoint is written after it."""


class BrokenBatches:
    """Counts the broken batches of a run, and decides whether it continues."""

    def __init__(
        self, config: ResolvedConfig, learner: Learner, group: LearnerGroup, run: Path, say: Callable[[str], None]
    ) -> None:
        self._settings, self._learner, self._group, self._run, self._say = config.learner, learner, group, run, say
        self._dropped = self._in_a_row = 0

    def drop(self, error: NonFinite) -> None:
        """Continue without a batch (`learner.on_nan=skip`). Raises `error` if the run has to end.

        In a group every learner gets the same errors, so all drop the same batches.
        """
        self._dropped += 1
        self._in_a_row += 1
        if self._settings.on_nan == "stop" or self._in_a_row > self._settings.max_skipped:
            raise error
        if self._dropped == 1:
            self._say(f"a batch was dropped (learner.on_nan=skip): {self.keep(error)}")
        elif self._dropped.bit_count() == 1:  # at 2, 4, 8 ...
            self._say(f"{self._dropped} batches were dropped so far (learner.on_nan=skip)")

    def learnt(self) -> None:
        """Note that a batch was learnt from: the broken ones before it no longer count as in a row."""
        self._in_a_row = 0

    def keep(self, error: NonFinite) -> BrokenGradient:
        """Save a batch for `pronk debug`, and return the failure with the message for the user."""
        group, learner = self._group, self._learner
        recorded_values = learner.replay_loss.recorded if learner.replay_loss else None
        state = learner.state()
        before = {
            "network": state["network"],
            "target": state["target"],
            "version": learner.version,
            "entropy_cost": learner.loss.entropy_cost,
            "barrier_cost": learner.loss.barrier_cost,
            "recorded": None if recorded_values is None else recorded_values.cpu(),
        }
        return BrokenGradient(keep_broken_batch(error, error.batch, before, self._run, group.rank, group.broken))
