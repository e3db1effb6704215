"""The paper's core, an LSTM."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pronk.config import NetworkConfig
from pronk.networks.cores.recurrent import RecurrentCore
from pronk.types import ArraySpec


class LstmCore(RecurrentCore):
    """An LSTM that forgets everything before each `first` observation."""

    def __init__(self, inputs: int, config: NetworkConfig) -> None:
        super().__init__()
        self.size = config.core_size
        self._cell = nn.LSTMCell(inputs, self.size)
        self.start(self._cell)
        # The second of the gates (input, forget, cell, output) is the forget gate. A bias of 1 makes it remember at
        # first, as TensorFlow's LSTM does, and so the paper's; with 0, half of the cell's state is lost in every step.
        nn.init.ones_(self._cell.bias_ih.detach()[self.size : 2 * self.size])
        self.state_spec = {"hidden": ArraySpec((self.size,), "float32"), "cell": ArraySpec((self.size,), "float32")}

    def step(self, features: Tensor, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """See `RecurrentCore.step`."""
        hidden, cell = self._cell(features, (state["hidden"], state["cell"]))
        return {"hidden": hidden, "cell": cell}

    def steps(self, features: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """See `RecurrentCore.steps`."""
        before = (state["hidden"].unsqueeze(0), state["cell"].unsqueeze(0))
        outputs, hidden, cell = torch.lstm(features, before, self.weights(self._cell), *self.OPTIONS)
        return outputs, {"hidden": hidden[0], "cell": cell[0]}
