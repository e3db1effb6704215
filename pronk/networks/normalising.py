"""Observations of any scale, seen by the torso with mean 0 and standard deviation 1.

The statistics are buffers of the network (`parameters.Statistics`), so actors, checkpoints and exports have the
learner's. Bytes, class labels and words have a known range and stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from pronk.parameters import MEASURED_SHARE, Statistics, share_of_newest
from pronk.types import ArraySpec, Tree, leaves

LIMIT = 10.0  # in standard deviations: a rare large value must not dominate all others
CONSTANT = 1e-4  # a standard deviation of this share of the mean is rounding noise, not information
SMALLEST = 1e-8
# Measured batches that the statistics remember: those of 200,000 updates. A change of the statistics changes the
# policy, too, without any gradient: with a memory of 1,000 updates (eight passes over 4,096 steps are 64) HalfCheetah
# lost up to half of its return again.
MEMORY = 200_000 * MEASURED_SHARE


class ObservationNormaliser(nn.Module):
    """Normalises every entry of an observation that holds plain numbers, and leaves the others alone."""

    def __init__(self, specs: Tree) -> None:
        super().__init__()
        numbers = [(path, spec) for path, spec in leaves(specs) if is_number(spec)]
        self._entries = nn.ModuleList(EntryNormaliser(spec) for _, spec in numbers)
        self._paths = [path for path, _ in numbers]
        # Calling a module, or looking it up in another, takes longer than normalising a few numbers.
        self._functions = [
            (path.split("/") if path else [], entry.forward)
            for path, entry in zip(self._paths, self._entries, strict=True)
        ]

    def forward(self, observation: Tree) -> Tree:
        """[T, B, ...] -> the same tree; its plain numbers are normalised floats."""
        for keys, function in self._functions:
            observation = replaced(observation, keys, function)
        return observation

    @property
    def entries(self) -> dict[str, nn.Module]:
        """The normaliser of each entry, by its path."""
        return dict(zip(self._paths, self._entries, strict=True))

    def observe(self, observation: Tree, valid: Tensor) -> None:
        """Add the observations [T, B, ...] of valid steps to the sums of the statistics."""
        arrays = dict(leaves(observation))
        for path, entry in zip(self._paths, self._entries, strict=True):
            assert isinstance(entry, EntryNormaliser)
            entry.observe(arrays[path], valid)


class EntryNormaliser(Statistics):
    """Mean and variance of each number of one entry; of an image, of each channel."""

    mean: Tensor
    variance: Tensor
    batches: Tensor
    factor: Tensor
    shift: Tensor

    def __init__(self, spec: ArraySpec) -> None:
        pooled = pooled_axes(spec.shape)
        shape = torch.Size(1 if axis in pooled else size for axis, size in enumerate(spec.shape))
        super().__init__(1 + 2 * shape.numel())
        self._axes = (0, 1, *(axis + 2 for axis in pooled))  # of [T, B, ...]
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("variance", torch.ones(shape))
        self.register_buffer("batches", torch.zeros(()))
        # What acting needs, computed once per update: x * factor + shift.
        self.register_buffer("factor", torch.ones(shape))
        self.register_buffer("shift", torch.zeros(shape))

    def forward(self, array: Tensor) -> Tensor:
        """[T, B, ...] -> floats of mean 0 and standard deviation 1, within LIMIT."""
        return torch.addcmul(self.shift, array.float(), self.factor).clamp_(-LIMIT, LIMIT)

    def observe(self, array: Tensor, valid: Tensor) -> None:
        """Add up distances from the current mean, and their squares."""
        distance = (array.float() - self.mean) * valid.view(*valid.shape, *(1,) * (array.dim() - 2))
        numbers = array[0, 0].numel() / self.mean.numel()  # that share one mean
        sums = distance.sum(self._axes), distance.square().sum(self._axes)
        self.sums.add_(torch.cat([(valid.sum() * numbers).reshape(1), *(part.flatten() for part in sums)]))

    def update(self) -> None:
        """See `Statistics.update`. Means over all batches at first, later mostly over the newest."""
        sums, old_mean, old_variance, batches = self._arrays("sums", "mean", "variance", "batches")
        count = sums[0]
        if not count > 0:
            return
        distance, square = (sums[1:] / count).reshape(2, *old_mean.shape)
        batches = batches + 1
        share = share_of_newest(batches, MEMORY)
        mean = old_mean + share * distance
        # The variance of a mixture: that within each part, and that between their means.
        variance = (1 - share) * old_variance + share * (square - share * distance**2)
        variance = np.maximum(variance, 0.0)
        factor = 1.0 / (np.sqrt(variance) + CONSTANT * np.abs(mean) + SMALLEST)
        self._replace(mean=mean, variance=variance, batches=batches, factor=factor, shift=-mean * factor)


def is_number(spec: ArraySpec) -> bool:
    """Return whether an entry holds plain numbers of unknown scale."""
    return not spec.categories and not spec.words and spec.dtype not in ("uint8", "bool")


def pooled_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes that share their statistics: all of an image but its channels."""
    if len(shape) < 3:
        return ()
    channels = shape.index(min(shape))
    return tuple(axis for axis in range(len(shape)) if axis != channels)


def replaced(tree: Tree, path: list[str], function: Callable[[Tensor], Tensor]) -> Tree:
    """Return the tree with the leaf at a path replaced by a function of it."""
    if not path:
        return function(tree)
    return {**tree, path[0]: replaced(tree[path[0]], path[1:], function)}
