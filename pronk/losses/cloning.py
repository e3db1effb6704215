"""Behaviour cloning: -log pi(a_t|x_t) of recorded actions, and the values of the policy that chose them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pronk.config import ResolvedLoss
from pronk.losses.base import LossTerms
from pronk.losses.corrections import vtrace
from pronk.losses.rewards import REWARD_CLIPS
from pronk.types import Unroll, Value


class CloneLoss:
    """A `Loss` for episodes of another policy, whose probabilities are not known."""

    entropy_cost = barrier_cost = 0.0
    target_log_prob: Tensor | None = None

    def __init__(self, config: ResolvedLoss) -> None:
        self._config, self._clip = config, REWARD_CLIPS[config.reward_clip]

    def __call__(self, distribution: Any, value: Value, batch: Unroll) -> LossTerms:
        """See `Loss`."""
        estimate, reward = value.estimate.detach(), self._clip(batch.reward * self._config.reward_scale)
        log_prob = distribution.log_prob(batch.action).masked_fill(~batch.valid, 0.0)
        as_recorded = torch.zeros_like(log_prob).masked_fill(~batch.valid, -torch.inf)  # a ratio of 1
        discount = self._config.discount * batch.discount
        bootstrapped = (estimate[:-1], estimate[-1])
        targets = vtrace(as_recorded, discount, reward, *bootstrapped, lambda_=self._config.lambda_)
        value.observe(targets.value, targets.advantage, batch.valid)
        weight = 1.0 / batch.valid.sum().clamp(min=1) if self._config.reduction == "mean" else 1.0
        policy = -log_prob.sum() * weight
        baseline = value.error(targets.value).masked_fill(~batch.valid, 0.0).sum() * weight
        terms = {"policy_loss": policy, "baseline_loss": baseline}
        return LossTerms(policy + self._config.baseline_cost * baseline, terms)
