"""A network's weights as one contiguous block.

Every weight is a view into the block, so publishing, loading and saving are one copy each, and the optimiser sees a
single long vector: for small networks most of an update's time would otherwise go into looping over tensors.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pronk.types import UserError

PADDING = 16  # floats: each weight starts on a cache line


class ParameterBlock:
    """Owns the storage of a network's parameters, their gradients, and its buffers."""

    def __init__(self, network: nn.Module) -> None:
        weights = dict(network.named_parameters())
        buffers = dict(network.named_buffers())
        for name, tensor in (weights | buffers).items():
            if tensor.dtype != torch.float32:
                raise UserError(f"network: {name} is {tensor.dtype}; weights and buffers must be float32")
        if not weights:
            raise UserError("network: it has no weights to learn")
        device = next(iter(weights.values())).device
        size = sum(_padded(tensor) for tensor in weights.values())
        whole = torch.zeros(size + sum(_padded(tensor) for tensor in buffers.values()), device=device)
        self.whole = whole
        self.weights = whole[:size]
        self.gradients = torch.zeros(size, device=device)
        offset = 0
        for tensor in (*weights.values(), *buffers.values()):
            view = whole[offset : offset + tensor.numel()].view_as(tensor)
            view.copy_(tensor.data)
            tensor.data = view
            if isinstance(tensor, nn.Parameter):
                tensor.grad = self.gradients[offset : offset + tensor.numel()].view_as(tensor)
            offset += _padded(tensor)

    @property
    def nbytes(self) -> int:
        """Size of the block."""
        return self.whole.numel() * 4

    @torch.no_grad()
    def load(self, block: Tensor) -> None:
        """Overwrite every weight and buffer with the bytes of another block of the same network."""
        self.whole.copy_(block.view(torch.float32))

    def bytes(self) -> Tensor:
        """The block as bytes on the CPU (a view where it already is there)."""
        return self.whole.detach().cpu().view(torch.uint8)


def block_nbytes(network: nn.Module) -> int:
    """Return the size of a network's block without making one."""
    return 4 * sum(map(_padded, [*network.parameters(), *network.buffers()]))


def _padded(tensor: Tensor) -> int:
    return -(-tensor.numel() // PADDING) * PADDING
