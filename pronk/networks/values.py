"""What a network's raw values mean, for the loss: the hook for value normalisation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pronk.parameters import Statistics

SLOWEST = 1e-3  # share of the newest batch in the statistics, once many batches have been seen


def in_float32(layer: nn.Linear, features: Tensor) -> Tensor:
    """Apply a layer in float32, also where `learner.precision=bfloat16` runs the network under autocast.

    bfloat16 has 8 significant bits: at 80 its steps are 0.5, so most values of a batch would round to the same number.
    """
    device = features.device.type
    if not torch.is_autocast_enabled(device):  # the actor's case: entering a context would cost more than the layer
        return layer(features)
    with torch.autocast(device, enabled=False):
        return layer(features.float())


class PlainValue:
    """Values that are learnt in the units of the return, without normalisation. See `types.Value`."""

    __slots__ = ("estimate",)

    def __init__(self, raw: Tensor) -> None:
        self.estimate = raw

    def error(self, target: Tensor) -> Tensor:
        """1/2 (v_t - V(x_t))^2."""
        return 0.5 * (target - self.estimate[:-1]).square()

    def scaled(self, advantage: Tensor) -> Tensor:
        """The advantage as it is."""
        return advantage

    def observe(self, target: Tensor, valid: Tensor, advantage=None) -> None:
        """Nothing to keep."""


class PopArtHead(Statistics):
    """A value head whose outputs are normalised by the mean and scale of the value targets, for each task.

    The network learns (v - mean) / scale, so rewards of any size give gradients of the same size. When the statistics
    change, the last layer is changed against them, so that the values in the units of the return stay what they were
    (van Hasselt et al. 2016; per task: Hessel et al. 2018).
    """

    mean: Tensor
    scale: Tensor
    spread: Tensor
    batches: Tensor

    def __init__(self, inputs: int, tasks: int) -> None:
        super().__init__(4 * tasks)
        self._linear = nn.Linear(inputs, tasks)
        # Zero, so that all targets are zero, and count for nothing, until the first reward.
        nn.init.zeros_(self._linear.weight)
        nn.init.zeros_(self._linear.bias)
        self.register_buffer("mean", torch.zeros(tasks))
        self.register_buffer("scale", torch.ones(tasks))
        self.register_buffer("spread", torch.ones(tasks))
        self.register_buffer("batches", torch.zeros(tasks))

    def forward(self, features: Tensor) -> Tensor:
        """Return normalised values [..., tasks]."""
        return in_float32(self._linear, features)

    def value(self, raw: Tensor, task: Tensor) -> PopArtValue:
        """See `Network.value`."""
        return PopArtValue(self, raw, task)

    def update(self) -> None:
        """See `Statistics.update`."""
        count, distance, square, advantage = self.sums.view(4, -1)
        seen = (square > 0).float()
        count = count.clamp(min=1e-9)
        self.batches.add_(seen)
        share = seen * (1.0 / self.batches.clamp(min=1.0)).clamp(min=SLOWEST)
        distance = distance / count
        mean = self.mean + share * distance
        first = self.batches <= 1
        variance = torch.where(first, 0.0, self.scale.square())
        variance = (1 - share) * variance + share * (square / count - share * distance.square())
        scale = torch.where(seen > 0, variance.clamp(min=1e-16).sqrt(), self.scale)
        spread = torch.where(first, 0.0, self.spread.square())
        spread = ((1 - share) * spread + share * advantage / count).clamp(min=1e-16).sqrt()
        self.spread.copy_(torch.where(seen > 0, spread, self.spread))
        self._linear.weight.mul_((self.scale / scale).unsqueeze(-1))
        self._linear.bias.copy_((self.scale * self._linear.bias + self.mean - mean) / scale)
        self.mean.copy_(mean)
        self.scale.copy_(scale)


class PopArtValue:
    """See `types.Value`."""

    def __init__(self, head: PopArtHead, raw: Tensor, task: Tensor) -> None:
        self._head, self._task = head, task.long()
        if raw.shape[-1] == 1:
            self._mean, self._scale, self._spread = head.mean, head.scale, head.spread
            self._raw = raw.squeeze(-1)
        else:
            self._mean, self._scale = head.mean[self._task], head.scale[self._task]
            self._spread = head.spread[self._task]
            self._raw = raw.gather(-1, self._task.expand(raw.shape[:2]).unsqueeze(-1)).squeeze(-1)
        self.estimate = self._mean + self._scale * self._raw

    def error(self, target: Tensor) -> Tensor:
        """1/2 of the squared error, in normalised units."""
        return 0.5 * ((target - self._mean) / self._scale - self._raw[:-1]).square()

    def scaled(self, advantage: Tensor) -> Tensor:
        self._advantage = advantage
        return advantage / self._spread

    def observe(self, target: Tensor, valid: Tensor, advantage=None) -> None:
        """See `types.Value.observe`."""
        weight = valid.to(target.dtype)
        distance = (target - self._mean) * weight
        sums = self._head.sums.view(4, -1)
        for row, amount in zip(sums, (weight, distance, distance.square(), advantage.square()*weight), strict=True):
            row.index_add_(0, self._task, amount.sum(0))
