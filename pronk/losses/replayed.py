"""What replay adds to any loss: a trust region, cloning, and what the buffer remembers of each column.

Replayed columns are the last of a batch, after `learner.batch_size` others. The loss inside sees an ordinary batch, so
a loss of your own needs no change.

    trust region    steps with pi(a_t|x_t) / mu(a_t|x_t) outside [1/c, c] are not valid for the loss inside
    cloning         + clone_policy_cost x -log pi(a_t|x_t)  + clone_value_cost x (V(x_t) - V_then(x_t))^2

LASER (arXiv 1909.11583) asks at each state whether the two distributions are close, KL(pi || mu) < b. That needs all of
mu, while an unroll records only log mu(a_t|x_t): it is all that V-trace needs, for any action space. The ratio of the
action taken is a sample of the same distance. It is noisier: where the policies differ, a step is kept if its action
happens to be about as likely in both.

CLEAR (arXiv 1811.11682) keeps the policy near the one that acted by KL(mu || pi). Its gradient is the expected one of
-log pi(a) over actions of mu, of which the recorded action is a sample. Values are kept near those that the learner
had when the column was fresh.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pronk.config import ReplayConfig, ResolvedLoss
from pronk.losses.base import Loss, LossTerms
from pronk.losses.rewards import REWARD_CLIPS
from pronk.types import Unroll, Value


class Seen(NamedTuple):
    """What the buffer remembers of a batch's columns."""

    value: Tensor  # [T+1, B]  V(x_t)
    error: Tensor  # [B]       mean |r_t + gamma_t V(x_{t+1}) - V(x_t)| over the valid steps


def of_inner(name: str) -> Any:
    """Return a property that is the inner loss's: what the learner sets of a `Loss` reaches it."""
    return property(lambda self: getattr(self._loss, name), lambda self, new: setattr(self._loss, name, new))


class ReplayLoss:
    """A loss of batches whose columns from `fresh_columns` on are replayed."""

    entropy_cost, barrier_cost, target_log_prob = map(of_inner, ("entropy_cost", "barrier_cost", "target_log_prob"))
    recorded: Tensor | None = None
    """[T+1, replayed columns] values when these columns were fresh. Set before each call, where values are cloned."""
    seen: Seen | None = None
    """Of the last call, where the buffer remembers any of it."""

    def __init__(self, loss: Loss, config: ResolvedLoss, replay: ReplayConfig, fresh_columns: int) -> None:
        self._loss, self._config, self._replay, self._fresh_columns = loss, config, replay, fresh_columns
        self._clip = REWARD_CLIPS[config.reward_clip]
        self._remembers = replay.sampling == "prioritised" or replay.clone_value_cost > 0

    def __call__(self, distribution: Any, value: Value, batch: Unroll) -> LossTerms:
        """See `Loss`."""
        self.seen = self._see(value, batch) if self._remembers else None
        is_replayed = batch.valid.clone()
        is_replayed[:, : self._fresh_columns] = False
        log_prob = None
        if self._replay.trust_region is not None or self._replay.clone_policy_cost:
            log_prob = distribution.log_prob(batch.action)
        terms = self._trusted_terms(distribution, value, batch, is_replayed, log_prob)
        return self._with_cloning(terms, log_prob, value, is_replayed, batch.valid)

    def _trusted_terms(
        self, distribution: Any, value: Value, batch: Unroll, is_replayed: Tensor, log_prob: Tensor | None
    ) -> LossTerms:
        """Return the terms of the loss inside, without steps outside the trust region."""
        bound = self._replay.trust_region
        if bound is None or log_prob is None:
            return self._loss(distribution, value, batch)
        is_far = (log_prob.detach() - batch.log_prob).abs() > math.log(bound)
        trusted = batch.valid & ~(is_replayed & is_far)
        terms = self._loss(distribution, value, batch._replace(valid=trusted))
        # Rejected steps stay in the denominator of a mean. Several learners weigh their means by all valid steps, so
        # only this adds up to the step of one learner.
        share = trusted.sum() / batch.valid.sum().clamp(min=1)
        scale = share if self._config.reduction == "mean" else 1.0
        metrics = {name: term * scale if name.endswith("loss") else term for name, term in terms.metrics.items()}
        return LossTerms(terms.total * scale, metrics | {"trusted": share})

    def _with_cloning(
        self, terms: LossTerms, log_prob: Tensor | None, value: Value, is_replayed: Tensor, valid: Tensor
    ) -> LossTerms:
        """Add the terms of cloning, reduced as the loss is. Every batch has their metrics, replayed columns or not."""
        total, metrics = terms.total, dict(terms.metrics)
        weight = 1.0 / valid.sum().clamp(min=1) if self._config.reduction == "mean" else 1.0
        if cost := self._replay.clone_policy_cost:
            assert log_prob is not None
            metrics["clone_policy_loss"] = -log_prob.masked_fill(~is_replayed, 0.0).sum() * weight
            total = total + cost * metrics["clone_policy_loss"]
        if cost := self._replay.clone_value_cost:
            target = value.estimate.detach()[:-1].clone()
            if self.recorded is not None and target.shape[1] > self._fresh_columns:
                target[:, self._fresh_columns :] = self.recorded[:-1]
            distance = 2.0 * value.error(target)  # half the square, or the distance of two histograms (hl_gauss)
            metrics["clone_value_loss"] = distance.masked_fill(~is_replayed, 0.0).sum() * weight
            total = total + cost * metrics["clone_value_loss"]
        return LossTerms(total, metrics)

    @torch.no_grad()
    def _see(self, value: Value, batch: Unroll) -> Seen:
        estimate = value.estimate.detach()
        reward = self._clip(batch.reward * self._config.reward_scale)
        difference = reward + self._config.discount * batch.discount * estimate[1:] - estimate[:-1]
        errors = difference.abs().masked_fill(~batch.valid, 0.0)
        return Seen(estimate, errors.sum(0) / batch.valid.sum(0).clamp(min=1))
