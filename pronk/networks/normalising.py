"""Observations of any scale, seen by the torso with mean 0 and standard deviation 1.

The statistics are buffers of the network (`parameters.Statistics`), so actors, checkpoints and exports have those that
the learner had. Bytes and class labels have a known range and stay as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pronk.parameters import Statistics
from pronk.types import ArraySpec, Tree, Unroll, leaves

LIMIT = 10.0  # in standard deviations: a rare event must not drown everything else
SLOWEST = 1e-3  # share of the newest batch in the statistics, once many batches have been seen
CONSTANT = 1e-4  # a standard deviation this small beside the mean is rounding noise, not information


class ObservationNormaliser(nn.Module):
    """Normalises every entry that holds plain numbers. Off is off: without such an entry it does nothing."""

    def __init__(self, specs: Tree) -> None:
        super().__init__()
        self._entries = nn.ModuleDict()
        self._names: dict[str, str] = {}  # path -> name of the module, which may hold no dots
        for number, (path, spec) in enumerate(leaves(specs)):
            if is_number(spec):
                self._names[path] = str(number)
                self._entries[str(number)] = EntryStatistics(spec)

    def forward(self, observation: Tree) -> Tree:
        """[T, B, ...] -> the same tree, with its plain numbers as normalised floats."""
        return self._mapped(observation)

    def observe(self, observation: Tree, valid: Tensor) -> None:
        """Add the observations [T, B, ...] of valid steps to the sums of the statistics."""
        arrays = dict(leaves(observation))
        for path, name in self._names.items():
            self._entries[name].observe(arrays[path], valid)

    def _mapped(self, tree: Tree, path: str = "") -> Tree:
        if isinstance(tree, dict):
            return {key: self._mapped(part, f"{path}/{key}" if path else key) for key, part in tree.items()}
        return self._entries[self._names[path]](tree) if path in self._names else tree


class EntryStatistics(Statistics):
    """Mean and standard deviation of each number of one entry; of an image, one for each of its channels."""

    shift: Tensor
    factor: Tensor
    mean: Tensor
    variance: Tensor
    batches: Tensor

    def __init__(self, spec: ArraySpec) -> None:
        self._axes = pooled_axes(spec.shape)
        shape = tuple(1 if axis in self._axes else size for axis, size in enumerate(spec.shape))
        size = int(torch.Size(shape).numel())
        super().__init__(1 + 2 * size)
        self._shape = shape
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("variance", torch.ones(shape))
        self.register_buffer("batches", torch.zeros(()))
        # What acting needs, computed once per update: x * factor + shift.
        self.register_buffer("shift", torch.zeros(shape))
        self.register_buffer("factor", torch.ones(shape))

    def forward(self, array: Tensor) -> Tensor:
        """[T, B, ...] -> floats of mean 0 and standard deviation 1, within LIMIT."""
        return torch.addcmul(self.shift, array.float(), self.factor).clamp(-LIMIT, LIMIT)

    def observe(self, array: Tensor, valid: Tensor) -> None:
        """Add distances from the current mean, and their squares."""
        distance = array.float() - self.mean
        distance *= valid.view(*valid.shape, *(1,) * (distance.dim() - 2))
        axes = (0, 1, *(axis + 2 for axis in self._axes))
        pooled = distance[0, 0].numel() // max(1, self.mean.numel())
        first, second = distance.sum(axes, keepdim=True), distance.square().sum(axes, keepdim=True)
        size = self.mean.numel()
        self.sums[0] += valid.sum() * pooled
        self.sums[1 : 1 + size] += first.flatten()
        self.sums[1 + size :] += second.flatten()

    def update(self) -> None:
        """See `Statistics.update`. A mean over all batches at first, later over the last thousand or so."""
        count = self.sums[0]
        seen = (count > 0).float()
        distance, square = (part.view(self._shape) / count.clamp(min=1e-9) for part in self.sums[1:].chunk(2))
        self.batches.add_(seen)
        share = seen * (1.0 / self.batches.clamp(min=1.0)).clamp(min=SLOWEST)
        # Of a mixture: the spread within each part, and that between their means.
        self.variance.mul_(1 - share).add_(share * (square - share * distance.square())).clamp_(min=0.0)
        self.mean.add_(share * distance)
        spread = self.variance.sqrt() + CONSTANT * self.mean.abs() + 1e-8
        self.factor.copy_(torch.where(self.batches > 0, 1.0 / spread, torch.ones_like(spread)))
        self.shift.copy_(-self.mean * self.factor)


def is_number(spec: ArraySpec) -> bool:
    """Whether an entry holds plain numbers of unknown scale."""
    return not spec.categories and spec.dtype not in ("uint8", "bool")


def pooled_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes that share their statistics: height and width of an image."""
    if len(shape) < 3:
        return ()
    channels = min(range(len(shape)), key=lambda axis: shape[axis])
    return tuple(axis for axis in range(len(shape)) if axis != channels)
