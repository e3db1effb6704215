"""The paper's core, an LSTM."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pronk.config import NetworkConfig
from pronk.networks.cores.base import Core
from pronk.types import ArraySpec, Tree


class LstmCore(Core):
    """An LSTM that forgets everything before each `first` observation."""

    def __init__(self, inputs: int, config: NetworkConfig) -> None:
        super().__init__()
        self.size = config.core_size
        self._cell = nn.LSTMCell(inputs, self.size)
        self.state_spec = {"hidden": ArraySpec((self.size,), "float32"), "cell": ArraySpec((self.size,), "float32")}

    def forward(self, features: Tensor, first: Tensor, state: Tree) -> tuple[Tensor, Tree]:
        """[T, B, F], [T, B], [B, size] -> [T, B, size] and the state after it."""
        hidden, cell = state["hidden"], state["cell"]
        keep = (~first).unsqueeze(-1).to(features.dtype)
        outputs = []
        for features_t, keep_t in zip(features.unbind(0), keep.unbind(0), strict=True):
            hidden, cell = self._cell(features_t, (hidden * keep_t, cell * keep_t))
            outputs.append(hidden)
        return torch.stack(outputs), {"hidden": hidden, "cell": cell}
