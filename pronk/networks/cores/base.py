"""The interface of a core: features [T, B, F] -> features [T, B, G], with a memory that is reset at each `first`."""

from __future__ import annotations

from torch import Tensor, nn

from pronk.config import NetworkConfig
from pronk.config.named import find
from pronk.types import Tree


class Core(nn.Module):
    """Made as `Core(inputs, config)`, with `inputs` = F."""

    size: int
    """G."""
    state_spec: Tree
    """Of the memory, without its batch axis. It is float32, and zero at the start of an episode."""

    def forward(self, features: Tensor, first: Tensor, state: Tree) -> tuple[Tensor, Tree]:
        """[T, B, F], [T, B], [B, ...] -> [T, B, G] and the state after it.

        What came before an observation that is `first`, the given state included, has no influence on anything from
        that observation on. T steps at once and T times one step give the same.
        """
        raise NotImplementedError


class NoCore(Core):
    """No memory."""

    def __init__(self, inputs: int, config: NetworkConfig) -> None:
        super().__init__()
        self.size = inputs
        self.state_spec = {}

    def forward(self, features: Tensor, first: Tensor, state: Tree) -> tuple[Tensor, Tree]:
        """Unchanged."""
        return features, state


TABLE = {
    "none": "pronk.networks.cores.base:NoCore",
    "lstm": "pronk.networks.cores.lstm:LstmCore",
    "gru": "pronk.networks.cores.gru:GruCore",
    "attention": "pronk.networks.cores.attention:AttentionCore",
}


def make_core(inputs: int, config: NetworkConfig) -> Core:
    """Make the configured core."""
    return find("core", config.core, TABLE)(inputs, config)
