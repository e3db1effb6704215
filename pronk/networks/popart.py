"""PopArt: values are learnt with mean 0 and scale 1, whatever the size of the rewards.

The network learns (v - mean) / scale of its targets. When the statistics change, the last layer is changed to
compensate, so that values in the units of the return stay what they were (van Hasselt et al. 2016; a mean and a scale
for each task: Hessel et al. 2018). Advantages are divided by their own running size, so the policy's gradient has the
same size for every task, and an entropy cost means the same everywhere.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pronk.networks.heads import in_float32
from pronk.parameters import Statistics, share_of_newest

SMALLEST = 1e-8
FLATTEST = 1e-2  # a scale below this share of the mean, or an advantage below this share of the scale, is noise
MEMORY = 1e3  # batches that the statistics remember


class PopArtHead(Statistics):
    """A value head with one output, and statistics of its targets and advantages, for each task."""

    mean: Tensor
    scale: Tensor
    advantage_size: Tensor
    batches: Tensor

    def __init__(self, inputs: int, tasks: int, outputs: int = 1) -> None:
        super().__init__(4 * tasks)
        self._linear = nn.Linear(inputs, tasks * outputs)
        # All values are zero at first. So all targets are zero, and count for nothing, until the first reward is seen.
        nn.init.zeros_(self._linear.weight)
        nn.init.zeros_(self._linear.bias)
        self.register_buffer("mean", torch.zeros(tasks))
        self.register_buffer("scale", torch.ones(tasks))
        self.register_buffer("advantage_size", torch.ones(tasks))
        self.register_buffer("batches", torch.zeros(tasks))

    def forward(self, features: Tensor) -> Tensor:
        """Return normalised values [..., tasks]."""
        return in_float32(self._linear, features)

    def value(self, raw: Tensor, task: Tensor) -> PopArtValue:
        """See `Network.value`."""
        return PopArtValue(self, raw, task.long())

    def observe(self, task: Tensor, *sums: Tensor) -> None:
        """Add [B] sums over the valid steps of each column: count, distance from the mean, its square, advantage²."""
        for total, amount in zip(self.sums.view(4, -1), sums, strict=True):
            total.index_add_(0, task, amount)

    def update(self) -> None:
        """See `Statistics.update`."""
        count, distance, square, advantage_square = self.sums.view(4, -1)
        seen = (square > 0).float()
        count = count.clamp(min=SMALLEST)
        self.batches.add_(seen)
        share = seen * share_of_newest(self.batches, MEMORY)
        distance = distance / count
        mean = self.mean + share * distance
        # The variance of a mixture: that within each part, and that between their means.
        variance = (1 - share) * self.scale.square() + share * (square / count - share * distance.square())
        scale = torch.maximum(variance.clamp(min=SMALLEST**2).sqrt(), FLATTEST * mean.abs())
        scale = torch.where(seen > 0, scale, self.scale)
        self._preserve(mean, scale)
        self.mean.copy_(mean)
        self.scale.copy_(scale)
        size = ((1 - share) * self.advantage_size.square() + share * advantage_square / count).sqrt()
        self.advantage_size.copy_(torch.where(seen > 0, torch.maximum(size, FLATTEST * scale), self.advantage_size))

    def _preserve(self, mean: Tensor, scale: Tensor) -> None:
        """Change the last layer so that values in the units of the return stay what they were."""
        self._linear.weight.mul_((self.scale / scale).unsqueeze(-1))
        self._linear.bias.copy_((self.scale * self._linear.bias + self.mean - mean) / scale)


class PopArtValue:
    """See `types.Value`."""

    def __init__(self, head: PopArtHead, raw: Tensor, task: Tensor) -> None:
        self._head, self._task = head, task
        self._mean, self._scale = head.mean[task], head.scale[task]  # [B]
        self._known = (head.batches[task] > 0).to(raw.dtype)  # [B] 0: without a scale yet; the batch only sets it
        if raw.shape[-1] == 1:
            self._normalised = raw.squeeze(-1)
        else:
            self._normalised = raw.gather(-1, task.expand(raw.shape[:2]).unsqueeze(-1)).squeeze(-1)
        self.estimate = self._mean + self._scale * self._normalised

    def error(self, target: Tensor) -> Tensor:
        """1/2 of the squared error, in normalised units."""
        return 0.5 * self._known * ((target - self._mean) / self._scale - self._normalised[:-1]).square()

    def scaled(self, advantage: Tensor) -> Tensor:
        """The advantage in units of its own running size."""
        return advantage * (self._known / self._head.advantage_size[self._task])

    def observe(self, target: Tensor, advantage: Tensor, valid: Tensor) -> None:
        """See `types.Value.observe`."""
        count = valid.to(target.dtype)
        distance = (target - self._mean) * count
        sums = (count, distance, distance.square(), advantage.square() * count)
        self._head.observe(self._task, *(amount.sum(0) for amount in sums))
