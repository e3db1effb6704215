"""Heads: features -> the parameters of an action distribution, or a value. All of them compute in float32."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from pronk.networks.distributions import parameter_count
from pronk.networks.initialise import orthogonal
from pronk.networks.values import PlainValue
from pronk.types import ActionSpec, Value

# A small gain makes the first policy nearly uniform; a large one would commit to an action before anything is learnt.
POLICY_GAIN, VALUE_GAIN = 0.01, 1.0
# The first standard deviation of n real-valued actions is n to this power. With 0 (1 for each), what Ant's eight joints
# do is mostly noise: a return of -22 after 250,000 steps instead of 311. With -1/2 (1 for all together) HalfCheetah and
# Ant learn still faster, but DeepMind Control's walker, whose actions cost nothing, explores too little: 81 instead of
# 196.
STD_EXPONENT = -0.25


class ChoiceHead(nn.Module):
    """Logits of one or several discrete choices."""

    def __init__(self, inputs: int, action: ActionSpec) -> None:
        super().__init__()
        self._linear = orthogonal(nn.Linear(inputs, parameter_count(action)), POLICY_GAIN)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits [..., P]."""
        return in_float32(self._linear, features)


class GaussianHead(nn.Module):
    """Means that depend on the observation, standard deviations that do not."""

    def __init__(self, inputs: int, action: ActionSpec) -> None:
        super().__init__()
        size = action.array.size
        self._mean = orthogonal(nn.Linear(inputs, size), POLICY_GAIN)
        self._log_std = nn.Parameter(torch.full((size,), math.log(size**STD_EXPONENT)))

    def forward(self, features: Tensor) -> Tensor:
        """Return [..., 2 x size]: means, then log standard deviations."""
        mean = in_float32(self._mean, features)
        return torch.cat([mean, self._log_std.expand_as(mean)], -1)


class ValueHead(nn.Module):
    """One value per observation, in the units of the return."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self._linear = orthogonal(nn.Linear(inputs, 1), VALUE_GAIN)

    def forward(self, features: Tensor) -> Tensor:
        """Return values [...]."""
        return in_float32(self._linear, features).squeeze(-1)

    def value(self, raw: Tensor, task: Tensor) -> Value:
        """See `Network.value`."""
        return PlainValue(raw)


def in_float32(layer: nn.Linear, features: Tensor) -> Tensor:
    """Apply a layer in float32, also where `learner.precision=bfloat16` runs the network under autocast.

    bfloat16 has 8 significant bits: at 80 its steps are 0.5, so most values of a batch would round to the same number.
    """
    device = features.device.type
    if not torch.is_autocast_enabled(device):  # the actor's case: entering a context would cost more than the layer
        return layer(features)
    with torch.autocast(device, enabled=False):
        return layer(features.float())


def policy_head(inputs: int, action: ActionSpec) -> nn.Module:
    """Make the head for an action space."""
    return ChoiceHead(inputs, action) if action.choices else GaussianHead(inputs, action)
