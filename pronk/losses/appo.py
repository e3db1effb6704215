"""PPO's clipped surrogate on off-policy data, with V-trace targets: several passes over a batch stay stable."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pronk.config import LossConfig
from pronk.losses.base import LossTerms
from pronk.losses.corrections import CORRECTIONS
from pronk.losses.impala import REWARD_CLIPS
from pronk.types import Unroll, Value


class AppoLoss:
    def __init__(self, config: LossConfig) -> None:
        self._config = config
        self._correct = CORRECTIONS[config.correction]
        self._clip = REWARD_CLIPS[config.reward_clip]
        self._bars = {name: getattr(config, name) for name in ("rho_bar", "c_bar", "pg_rho_bar", "lambda_")}

    def __call__(self, distribution: Any, value: Value, batch: Unroll) -> LossTerms:
        config = self._config
        eps = config.kwargs.get("clip", 0.2)
        log_prob = distribution.log_prob(batch.action)
        log_ratio = (log_prob - batch.log_prob).masked_fill(~batch.valid, 0.0)
        log_rho = log_ratio.detach().masked_fill(~batch.valid, -torch.inf)
        reward = self._clip(batch.reward * config.reward_scale)
        discount = config.discount * batch.discount
        estimate = value.estimate.detach()
        targets = self._correct(log_rho, discount, reward, estimate[:-1], estimate[-1], **self._bars)
        counts = batch.valid.to(estimate.dtype)
        next_value = estimate[1:]
        next_target = torch.cat([targets.value[1:], estimate[-1:]])
        lam = config.lambda_
        advantage = (reward + discount * (lam * next_target + (1 - lam) * next_value) - estimate[:-1]) * counts
        value.observe(targets.value, advantage, batch.valid)

        weight = 1.0 / counts.sum().clamp(min=1.0) if config.reduction == "mean" else 1.0
        a = value.scaled(advantage)
        ratio = log_ratio.clamp(-20, 20).exp()
        policy = -torch.minimum(ratio * a, ratio.clamp(1 - eps, 1 + eps) * a).sum() * weight
        baseline = (value.error(targets.value) * counts).sum() * weight
        entropy = (distribution.entropy() * counts).sum()
        total = policy + config.baseline_cost * baseline - config.entropy_cost * entropy * weight
        metrics = {
            "policy_loss": policy,
            "baseline_loss": baseline,
            "entropy": entropy / counts.sum().clamp(min=1.0),
            "clipped": (((ratio.detach() - 1).abs() > eps) * counts).sum() / counts.sum().clamp(min=1.0),
        }
        return LossTerms(total, metrics)
