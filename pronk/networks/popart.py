"""PopArt: values are learnt with mean 0 and scale 1, whatever the size of the rewards.

The network learns (v - mean) / scale of its targets. When the statistics change, the last layer is changed to
compensate, so that values in the units of the return stay what they were (van Hasselt et al. 2016; a mean and a scale
for each task: Hessel et al. 2018). Advantages are divided by their own running size, so the policy's gradient has the
same size for every task, and an entropy cost means the same everywhere.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from pronk.networks.heads import in_float32
from pronk.parameters import MEASURED_SHARE, Statistics, share_of_newest
from pronk.types import Array

SMALLEST = 1e-8
FLATTEST = 1e-2  # a scale below this share of the mean, or an advantage below this share of the scale, is noise
MEMORY = 2_000 * MEASURED_SHARE  # measured batches that the statistics remember: those of 2,000 updates


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

    def observe(self, task: Tensor, sums: Tensor) -> None:
        """Add sums over the valid steps of columns, [4, B]: count, distance from the mean, its square, advantage²."""
        self.sums.view(4, -1).index_add_(1, task, sums)

    def update(self) -> None:
        """See `Statistics.update`."""
        (sums,) = self._arrays("sums")
        count, distance, square, advantage_square = sums.reshape(4, -1)
        seen = square > 0  # tasks that the batch had anything to say about
        if not seen.any():
            return
        old_mean, old_scale, old_size, batches = self._arrays("mean", "scale", "advantage_size", "batches")
        batches = batches + seen
        share = seen * share_of_newest(batches, MEMORY)
        count = np.maximum(count, SMALLEST)
        distance = distance / count
        mean = old_mean + share * distance
        # The variance of a mixture: that within each part, and that between their means.
        variance = (1 - share) * old_scale**2 + share * (square / count - share * distance**2)
        scale = np.maximum(np.sqrt(np.maximum(variance, SMALLEST**2)), FLATTEST * np.abs(mean))
        scale = np.where(seen, scale, old_scale)
        size = np.sqrt((1 - share) * old_size**2 + share * advantage_square / count)
        size = np.where(seen, np.maximum(size, FLATTEST * scale), old_size)
        self._preserve(old_scale / scale, (old_mean - mean) / scale)
        self._replace(mean=mean, scale=scale, advantage_size=size, batches=batches)

    def _preserve(self, factor: Array, shift: Array) -> None:
        """Change the last layer so that values in the units of the return stay what they were."""
        scaled, shifted = (torch.from_numpy(array).to(self._linear.bias.device) for array in (factor, shift))
        self._linear.weight.mul_(scaled.unsqueeze(-1))
        self._linear.bias.mul_(scaled).add_(shifted)


class PopArtValue:
    """See `types.Value`."""

    def __init__(self, head: PopArtHead, raw: Tensor, task: Tensor) -> None:
        self._head, self._task = head, task
        self._mean, self._scale = self._of_task(head.mean), self._of_task(head.scale)
        self._known = self._of_task(head.batches).clamp(max=1.0)  # 0: without a scale yet; the batch only sets it
        if raw.shape[-1] == 1:
            self._normalised = raw.squeeze(-1)
        else:
            self._normalised = raw.gather(-1, task.expand(raw.shape[:2]).unsqueeze(-1)).squeeze(-1)
        self.estimate = torch.addcmul(self._mean, self._scale, self._normalised)

    def error(self, target: Tensor) -> Tensor:
        """1/2 of the squared error, in normalised units."""
        # V - (v - mean) / scale in one operation: its sign does not matter, and there is less to differentiate.
        error = torch.addcdiv(self._normalised[:-1], self._mean - target, self._scale)
        return (0.5 * self._known) * error.square()

    def scaled(self, advantage: Tensor) -> Tensor:
        """The advantage in units of its own running size."""
        return advantage * (self._known / self._of_task(self._head.advantage_size))

    def observe(self, target: Tensor, advantage: Tensor, valid: Tensor) -> None:
        """See `types.Value.observe`."""
        if not self._head.is_due:
            return
        count = valid.to(target.dtype)
        distance = (target - self._mean) * count
        amounts = torch.stack([count, distance, distance.square(), advantage.square() * count])
        self._head.observe(self._task, amounts.sum(1))

    def _of_task(self, numbers: Tensor) -> Tensor:
        """Numbers of all tasks -> [B] of each column's task, or [1] if there is only one."""
        return numbers if len(numbers) == 1 else numbers[self._task]
