"""A network's weights, gradients and running statistics, each as one contiguous vector.

Every weight is a view into the block, so publishing, loading and saving are one copy each, and the optimiser sees a
single long vector. For small networks, looping over tensors would take most of an update's time.

    block      | weights                     | buffers |    published, saved, loaded by actors
    summed     | gradients (of the weights)  | sums    |    added up over all learners, in one all-reduce
"""

from __future__ import annotations

from collections import deque

import numpy as np
import torch
from torch import Tensor, nn

from pronk.types import Array, Parameters, UserError

PADDING = 16  # floats: each tensor starts on a cache line
ALWAYS_MEASURED = 256  # updates: at first statistics change fast
MEASURED_SHARE = 1 / 16  # of the later ones
GOLDEN_RATIO = (1 + 5**0.5) / 2


class Statistics(nn.Module):
    """Running statistics of the data that a network keeps, such as the mean and scale of its value targets.

    They are buffers, hence part of the parameter block: actors, checkpoints, exports and further learners have them.
    Only the learner changes them, in two halves, as it changes the weights:

        gradient    add sums over the valid steps of the batch to `sums`, which are zero at the start
        update      turn the sums, by then those of all learners, into new buffers

    So statistics are the same on all learners, and a step of L learners equals one learner's step on the concatenated
    batch. The price is that a batch's statistics take effect with the next batch. With loss.reduction=mean, the sums
    arrive divided by the number of valid steps, as the gradient does: sum up a count too, and divide by it. Sums of
    squares lose precision far from zero; sum up distances from the current mean instead.

    Not every batch is added up: see `is_measured`. `update` is computed in NumPy: torch takes longer to call its
    operations than to run them on a few numbers.
    """

    sums: Tensor
    is_due = True
    """Whether the current batch is to be added up. Set by the learner."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.sums = torch.zeros(size)  # neither weight nor buffer: it is not published

    def update(self) -> None:
        """Turn `sums` into new buffers; they are all zero if no step was valid.

        Called without gradients, after the optimiser's step.
        """
        raise NotImplementedError

    def _arrays(self, *names: str) -> list[Array]:
        """Return tensors of this module by their names, as arrays to read."""
        return [getattr(self, name).cpu().numpy() for name in names]

    def _replace(self, **arrays: Array) -> None:
        """Overwrite buffers by their names."""
        for name, array in arrays.items():
            getattr(self, name).copy_(torch.from_numpy(np.asarray(array)))


def is_measured(version: int) -> bool:
    """Return whether the statistics of the batch after so many updates are taken: of the first ones, then of a share.

    They change slowly, and taking them costs a small network a sixth of its update. Which ones follows from the
    version alone, so it is the same on all learners. Multiples of an irrational number have no period, so no part of
    what the actors send is always left out.
    """
    return version < ALWAYS_MEASURED or version * GOLDEN_RATIO % 1.0 < MEASURED_SHARE


def share_of_newest(batches: Array, memory: float) -> Array:
    """Return the weight of the newest batch in running statistics after so many batches.

    It makes a plain mean over all batches at first, and an exponential one after `memory` batches.
    """
    return 1.0 / np.minimum(np.maximum(batches, 1.0), memory)


class ParameterDelay:
    """Holds published parameters back for a number of updates (`learner.extra_lag`). 0 copies nothing."""

    def __init__(self, updates: int) -> None:
        self._updates = updates
        self._pending: deque[Parameters] = deque()

    def due(self, newest: Parameters, at_once: bool = False) -> Parameters | None:
        """Return the parameters to publish after an update, or None if none are old enough yet.

        With `at_once` these are the newest. Those held back until now are then older than what the actors have, so
        they are dropped.
        """
        if at_once or not self._updates:
            self._pending.clear()
            return newest
        self._pending.append(Parameters(newest.version, newest.block.copy()))
        return self._pending.popleft() if len(self._pending) > self._updates else None


class ParameterBlock:
    """Takes over the memory of a network's weights, their gradients, its buffers and the sums of its statistics."""

    def __init__(self, network: nn.Module) -> None:
        weights = dict(network.named_parameters())
        buffers = dict(network.named_buffers())
        for name, tensor in (weights | buffers).items():
            if tensor.dtype != torch.float32:
                raise UserError(f"network: {name} is {tensor.dtype}; weights and buffers must be float32")
        if not weights:
            raise UserError("network: it has no weights to learn")
        self.statistics = [module for module in network.modules() if isinstance(module, Statistics)]
        device = next(iter(weights.values())).device
        size = sum(map(_padded, weights.values()))
        self.values = torch.zeros(size + sum(map(_padded, buffers.values())), device=device)
        self.weights = self.values[:size]
        self.summed = torch.zeros(size + sum(_padded(module.sums) for module in self.statistics), device=device)
        self.gradients, self.sums = self.summed[:size], self.summed[size:]
        for name, (offset, _) in places_in_block(network).items():
            tensor = (weights | buffers)[name]
            view = self.values[offset : offset + tensor.numel()].view_as(tensor)
            view.copy_(tensor.data)
            tensor.data = view
            if isinstance(tensor, nn.Parameter):
                tensor.grad = self.gradients[offset : offset + tensor.numel()].view_as(tensor)
        self._view = self.values.view(torch.uint8).numpy() if device.type == "cpu" else None
        offset = 0
        for module in self.statistics:
            module.sums = self.sums[offset : offset + module.sums.numel()].view_as(module.sums)
            offset += _padded(module.sums)

    @property
    def nbytes(self) -> int:
        """Size of the block that is published."""
        return self.values.numel() * 4

    @torch.no_grad()
    def load(self, block: Tensor) -> None:
        """Overwrite every weight and buffer with the bytes of another block of the same network."""
        self.values.copy_(block.view(torch.float32))

    def bytes(self) -> Array:
        """Return the block as bytes on the CPU; a view, always the same, if it is there already."""
        return self._view if self._view is not None else self.values.cpu().view(torch.uint8).numpy()


def block_nbytes(network: nn.Module) -> int:
    """Return the size of a network's block without making one."""
    return 4 * sum(map(_padded, [*network.parameters(), *network.buffers()]))


def places_in_block(network: nn.Module) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Return the offset, in floats, and the shape of every weight and buffer in a network's block."""
    places, offset = {}, 0
    for name, tensor in (*network.named_parameters(), *network.named_buffers()):
        places[name] = (offset, tuple(tensor.shape))
        offset += _padded(tensor)
    return places


def _padded(tensor: Tensor) -> int:
    return -(-tensor.numel() // PADDING) * PADDING
