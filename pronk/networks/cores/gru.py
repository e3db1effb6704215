"""A GRU: three quarters of an LSTM's weights, and half its state."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pronk.config import NetworkConfig
from pronk.networks.cores.recurrent import RecurrentCore
from pronk.types import ArraySpec


class GruCore(RecurrentCore):
    """A GRU that forgets everything before each `first` observation."""

    def __init__(self, inputs: int, config: NetworkConfig) -> None:
        super().__init__()
        self.size = config.core_size
        self._cell = nn.GRUCell(inputs, self.size)
        self.start(self._cell)
        self.state_spec = {"hidden": ArraySpec((self.size,), "float32")}

    def step(self, features: Tensor, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """See `RecurrentCore.step`."""
        return {"hidden": self._cell(features, state["hidden"])}

    def steps(self, features: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """See `RecurrentCore.steps`."""
        before = state["hidden"].unsqueeze(0)
        outputs, hidden = torch.gru(features, before, self.weights(self._cell), *self.OPTIONS)
        return outputs, {"hidden": hidden[0]}
