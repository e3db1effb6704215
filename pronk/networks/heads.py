"""Heads: features -> the numbers that a distribution or a value needs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pronk.networks.distributions import parameter_count
from pronk.networks.initialise import orthogonal
from pronk.types import ActionSpec

# Nearly uniform at first: a large head would commit to one action before anything is known.
POLICY_GAIN, VALUE_GAIN = 0.01, 1.0


class ChoiceHead(nn.Module):
    """Logits of one or several discrete choices."""

    def __init__(self, inputs: int, action: ActionSpec) -> None:
        super().__init__()
        self._linear = orthogonal(nn.Linear(inputs, parameter_count(action)), POLICY_GAIN)

    def forward(self, features: Tensor) -> Tensor:
        """[..., P]."""
        return self._linear(features)


class GaussianHead(nn.Module):
    """Means that depend on the situation, spreads that do not."""

    def __init__(self, inputs: int, action: ActionSpec) -> None:
        super().__init__()
        self._mean = orthogonal(nn.Linear(inputs, action.array.size), POLICY_GAIN)
        self._log_std = nn.Parameter(torch.zeros(action.array.size))

    def forward(self, features: Tensor) -> Tensor:
        """[..., 2 x size]: means, then log standard deviations."""
        mean = self._mean(features)
        return torch.cat([mean, self._log_std.expand_as(mean)], -1)


class ValueHead(nn.Module):
    """The value of a situation."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self._linear = orthogonal(nn.Linear(inputs, 1), VALUE_GAIN)

    def forward(self, features: Tensor) -> Tensor:
        """[...]."""
        return self._linear(features).squeeze(-1)


def policy_head(inputs: int, action: ActionSpec) -> nn.Module:
    """The head for an action space."""
    return ChoiceHead(inputs, action) if action.choices else GaussianHead(inputs, action)
