"""The paper's loss: policy gradient + baseline_cost x baseline - entropy_cost x entropy, over the valid steps."""

from __future__ import annotations

from typing import Any

import torch

from pronk.config import ResolvedLoss
from pronk.losses.base import LossTerms
from pronk.losses.corrections import CORRECTIONS, SCORES, clipped, upgoing
from pronk.losses.exploring import exploration
from pronk.losses.rewards import REWARD_CLIPS
from pronk.types import Unroll, Value


class ImpalaLoss:
    """The actor-critic loss with any of the four off-policy corrections."""

    def __init__(self, config: ResolvedLoss) -> None:
        self._config = config
        self.entropy_cost, self.barrier_cost = config.entropy_cost, config.barrier_cost
        self._correct = CORRECTIONS[config.correction]
        self._score = SCORES.get(config.correction)
        self._clip = REWARD_CLIPS[config.reward_clip]
        self._bars = {name: getattr(config, name) for name in ("rho_bar", "c_bar", "pg_rho_bar", "lambda_")}

    def __call__(self, distribution: Any, value: Value, batch: Unroll) -> LossTerms:
        """See `Loss`."""
        log_prob = distribution.log_prob(batch.action)
        log_rho = (log_prob.detach() - batch.log_prob).masked_fill(~batch.valid, -torch.inf)
        reward = self._clip(batch.reward * self._config.reward_scale)
        discount = self._config.discount * batch.discount
        estimate = value.estimate.detach()
        targets = self._correct(log_rho, discount, reward, estimate[:-1], estimate[-1], **self._bars)
        if self._config.upgo_cost:
            upgo = upgoing(batch.valid, discount, reward, estimate[:-1], estimate[-1])
            weighted = self._config.upgo_cost * clipped(log_rho.exp(), self._config.pg_rho_bar) * upgo
            targets = targets._replace(advantage=targets.advantage + weighted)
        value.observe(targets.value, targets.advantage, batch.valid)

        counts = batch.valid.to(estimate.dtype)
        weight = 1.0 / counts.sum().clamp(min=1.0) if self._config.reduction == "mean" else 1.0
        score = self._score(log_prob) if self._score else log_prob
        policy = -(score * value.scaled(targets.advantage)).sum() * weight  # invalid steps have an advantage of zero
        baseline = (value.error(targets.value) * counts).sum() * weight
        bonus, entropy = exploration(distribution, counts, self.entropy_cost, self.barrier_cost)

        total = policy + self._config.baseline_cost * baseline - bonus * weight
        metrics = {
            "policy_loss": policy,
            "baseline_loss": baseline,
            "entropy": entropy / counts.sum().clamp(min=1.0),
        }
        return LossTerms(total, metrics)
