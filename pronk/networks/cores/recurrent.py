"""What the LSTM and the GRU have in common: walking through time, with a reset wherever an episode opens.

    time     0 1 2 3 4 5 6 7
    column 0 . . . f . . . .
    column 1 . . . . . f . .       f: `first`
    pieces   |-----|---|-----|     one call of torch's fused operator each

A call for each of T steps costs three to five times as much as one for all (128 steps of 4 columns, 256 units, on a
CPU). The fused operators know no resets, so time is cut wherever an episode opens in any column.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pronk.networks.cores.base import Core
from pronk.types import Tree


class RecurrentCore(Core):
    """Subclasses say what one step does, and how to do several at once without a reset among them."""

    OPTIONS: ClassVar[tuple[Any, ...]] = (True, 1, 0.0, True, False, False)
    """Of torch's operators: biases, one layer, no dropout, training (else cuDNN has no gradient), one way, [T, B]."""

    def step(self, features: Tensor, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """[B, F], [B, ...] -> the next state. Its `hidden` is the output."""
        raise NotImplementedError

    def steps(self, features: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """[T, B, F], [B, ...] -> [T, B, size] and the state after it; no episode opens in between."""
        raise NotImplementedError

    def forward(self, features: Tensor, first: Tensor, state: Tree) -> tuple[Tensor, Tree]:
        """See `Core.forward`."""
        keep = (~first).unsqueeze(-1).to(features.dtype)
        outputs = []
        if self._goes_step_by_step(features):
            for features_t, keep_t in zip(features.unbind(0), keep.unbind(0), strict=True):
                state = self.step(features_t, reset(state, keep_t))
                outputs.append(state["hidden"])
            return torch.stack(outputs), state
        starts = [0, *(first[1:].any(1).nonzero().flatten() + 1).tolist()]
        for start, end in zip(starts, [*starts[1:], len(features)], strict=True):
            output, state = self.steps(features[start:end], reset(state, keep[start]))
            outputs.append(output)
        return torch.cat(outputs), state

    @staticmethod
    def _goes_step_by_step(features: Tensor) -> bool:
        """Return whether fused operators cannot be used, or gain nothing.

        Acting is one step. A graph may not depend on where episodes open. Autocast does not know the operators.
        """
        is_graph = torch.compiler.is_compiling() or torch.jit.is_tracing()
        return is_graph or len(features) == 1 or torch.is_autocast_enabled(features.device.type)

    @staticmethod
    def start(cell: nn.RNNCellBase) -> None:
        """Set the first weights: orthogonal in each gate, biases zero."""
        for matrix in (cell.weight_ih, cell.weight_hh):
            for gate in matrix.detach().split(cell.hidden_size):
                nn.init.orthogonal_(gate)
        nn.init.zeros_(cell.bias_ih)
        nn.init.zeros_(cell.bias_hh)

    @staticmethod
    def weights(cell: nn.RNNCellBase) -> list[Tensor]:
        """Return the weights of a cell as torch's operators take them."""
        return [cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh]


def reset(state: dict[str, Tensor], keep: Tensor) -> dict[str, Tensor]:
    """Return the state [B, ...], zero where `keep` [B, 1] is."""
    return {name: array * keep for name, array in state.items()}
