"""PPO's clipped surrogate on off-policy data (APPO): several passes over a batch stay stable.

    ratio_t = pi(a_t|x_t) / mu(a_t|x_t)
    policy loss = - min(ratio_t A_t, clip(ratio_t, 1 - epsilon, 1 + epsilon) A_t)

The targets of the values are V-trace's. A_t is GAE's advantage computed from them: on-policy it is that of PPO. Where
the policy has moved further than epsilon from the one that acted, the gradient of a step vanishes, so learning from the
same batch again cannot run away.

With `loss.target_updates` the anchor is a target network instead of the policy that acted (IMPACT, arXiv 1912.00167).
The actors' policies differ and keep changing, so with old experience the clip would allow no step at all; the target
stands still for a while, and is the same for all experience. V-trace then corrects from mu to the target, and

    ratio_t = min(mu / pi_target, 2) x pi / mu        that is pi / pi_target, unless the target is far from mu
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from pronk.config import ResolvedLoss
from pronk.losses.base import LossTerms
from pronk.losses.corrections import CORRECTIONS, upgoing
from pronk.losses.exploring import exploration
from pronk.losses.rewards import REWARD_CLIPS
from pronk.types import Unroll, Value

LARGEST_LOG_RATIO = 20.0  # exp() of it is finite, and far beyond every clip
LARGEST_MU_OVER_TARGET = 2.0  # as in RLlib's APPO


class AppoLoss:
    """Clipped surrogate + baseline_cost x baseline - the bonus of exploring.py, over the valid steps."""

    target_log_prob: Tensor | None = None

    def __init__(self, config: ResolvedLoss) -> None:
        self._config = config
        self.entropy_cost, self.barrier_cost = config.entropy_cost, config.barrier_cost
        self._correct = CORRECTIONS[config.correction]
        self._clip = REWARD_CLIPS[config.reward_clip]
        self._bars = {name: getattr(config, name) for name in ("rho_bar", "c_bar", "pg_rho_bar", "lambda_")}

    def __call__(self, distribution: Any, value: Value, batch: Unroll) -> LossTerms:
        """See `Loss`."""
        config = self._config
        log_ratio, log_rho = self._log_ratios(distribution.log_prob(batch.action), batch)
        reward = self._clip(batch.reward * config.reward_scale)
        discount = config.discount * batch.discount
        estimate = value.estimate.detach()
        targets = self._correct(log_rho, discount, reward, estimate[:-1], estimate[-1], **self._bars)
        counts = batch.valid.to(estimate.dtype)
        next_target = torch.cat([targets.value[1:], estimate[-1:]])
        next_value = torch.lerp(estimate[1:], next_target, config.lambda_)
        advantage = (reward + discount * next_value - estimate[:-1]) * counts
        if config.upgo_cost:
            advantage += config.upgo_cost * upgoing(batch.valid, discount, reward, estimate[:-1], estimate[-1])
        value.observe(targets.value, advantage, batch.valid)

        steps = counts.sum().clamp(min=1.0)
        weight = 1.0 / steps if config.reduction == "mean" else 1.0
        ratio = log_ratio.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO).exp()
        bounded = ratio.clamp(1.0 - config.clip, 1.0 + config.clip)
        scaled = value.scaled(advantage)
        policy = -torch.minimum(ratio * scaled, bounded * scaled).sum() * weight
        baseline = (value.error(targets.value) * counts).sum() * weight
        bonus, entropy = exploration(distribution, counts, self.entropy_cost, self.barrier_cost)
        total = policy + config.baseline_cost * baseline - bonus * weight
        metrics = {
            "policy_loss": policy,
            "baseline_loss": baseline,
            "entropy": entropy / steps,
            "kl": (((ratio - 1.0) - log_ratio) * counts).sum() / steps,
            "clipped": ((ratio != bounded) * counts).sum() / steps,
        }
        return LossTerms(total, metrics)

    def _log_ratios(self, log_prob: Tensor, batch: Unroll) -> tuple[Tensor, Tensor]:
        """Return the logarithms of the ratio to clip, and of V-trace's ratio."""
        log_ratio = log_prob - batch.log_prob
        log_rho = log_ratio.detach()
        if self.target_log_prob is not None:
            log_rho = self.target_log_prob - batch.log_prob
            log_ratio = log_ratio + (-log_rho).clamp(max=math.log(LARGEST_MU_OVER_TARGET))
        return log_ratio.masked_fill(~batch.valid, 0.0), log_rho.masked_fill(~batch.valid, -torch.inf)
