"""Cores: features [T, B, F] -> features [T, B, G], with a memory that is reset where an episode opens."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pronk.types import ArraySpec, Tree


class Core(nn.Module):
    """Made as `Core(inputs, size)`."""

    size: int
    """G."""
    state_spec: Tree
    """Of the memory, without its batch axis."""

    def forward(self, features: Tensor, first: Tensor, state: Tree) -> tuple[Tensor, Tree]:
        """[T, B, F], [T, B], [B, ...] -> [T, B, G] and the state after it."""
        raise NotImplementedError


class NoCore(Core):
    """No memory."""

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.size = inputs
        self.state_spec = {}

    def forward(self, features: Tensor, first: Tensor, state: Tree) -> tuple[Tensor, Tree]:
        """Unchanged."""
        return features, state


class LstmCore(Core):
    """An LSTM that forgets everything before each `first` observation."""

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self._cell = nn.LSTMCell(inputs, size)
        self.size = size
        self.state_spec = {"hidden": ArraySpec((size,), "float32"), "cell": ArraySpec((size,), "float32")}

    def forward(self, features: Tensor, first: Tensor, state: Tree) -> tuple[Tensor, Tree]:
        """[T, B, F], [T, B], [B, size] -> [T, B, size] and the state after it."""
        hidden, cell = state["hidden"], state["cell"]
        keep = (~first).unsqueeze(-1).to(features.dtype)
        outputs = []
        for features_t, keep_t in zip(features.unbind(0), keep.unbind(0), strict=True):
            hidden, cell = self._cell(features_t, (hidden * keep_t, cell * keep_t))
            outputs.append(hidden)
        return torch.stack(outputs), {"hidden": hidden, "cell": cell}


CORES: dict[str, type[Core]] = {"none": NoCore, "lstm": LstmCore}
