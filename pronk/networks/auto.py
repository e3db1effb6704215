"""The torso `auto`: every entry of the observation gets the encoder that its spec calls for (`config/encoders.py`).

    image 84x84x4 ---- shallow ----.
    grid 7x7x3 ------- codes ------+-- joined -- one hidden layer -- features
    speed, direction - mlp --------'

An observation that needs only one encoder gets just that one, so nothing is slower than with its torso named.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pronk.config import NetworkConfig
from pronk.config.encoders import groups
from pronk.networks.codes import Codes
from pronk.networks.images import Compact, Shallow, Small
from pronk.networks.torsos import Mlp, Torso, hidden_layer
from pronk.types import Tree, leaves

ENCODERS: dict[str, type[Torso]] = {
    "mlp": Mlp,
    "codes": Codes,
    "small": Small,
    "compact": Compact,
    "shallow": Shallow,
}


def auto(specs: Tree, config: NetworkConfig) -> Torso:
    """Make the torso for an observation."""
    chosen = groups(specs)
    return ENCODERS[chosen[0].encoder](specs, config) if len(chosen) == 1 else Joined(specs, config)


class Joined(Torso):
    """Several encoders, and a common hidden layer as wide as the widest of them."""

    def __init__(self, specs: Tree, config: NetworkConfig) -> None:
        super().__init__(specs, config)
        chosen = groups(specs)
        self._paths = [list(group.entries) for group in chosen]
        encoders = [ENCODERS[group.encoder](group.entries, config) for group in chosen]
        sizes = [encoder.size for encoder in encoders]
        self._encoders = nn.ModuleList(encoders)
        self.size = max(sizes)
        self._layer = nn.Sequential(*hidden_layer(sum(sizes), self.size, "relu", config.layer_norm is True))

    def forward(self, observation: Tree) -> Tensor:
        """[M, size]."""
        arrays = dict(leaves(observation))
        parts = [
            encoder({path: arrays[path] for path in paths})
            for encoder, paths in zip(self._encoders, self._paths, strict=True)
        ]
        return self._layer(torch.cat(parts, -1))
