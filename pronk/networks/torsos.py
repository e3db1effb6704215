"""Torsos: a tree of observations [M, ...] -> features [M, F], for M = T x B situations at once.

Every entry of the observation is encoded by what its spec says it is (labels one-hot, bytes scaled to [0, 1], the rest
as it is), and the entries are joined.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional

from pronk.config import NetworkConfig
from pronk.networks.initialise import orthogonal
from pronk.networks.text import HIDDEN, TextEncoder
from pronk.types import ArraySpec, Tree, leaves

ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh}


class Flat(nn.Module):
    """The observation as one vector of floats; texts as the features of an encoder each."""

    def __init__(self, specs: Tree) -> None:
        super().__init__()
        self._specs = dict(leaves(specs))
        texts = [path for path, spec in self._specs.items() if spec.words]
        self._texts = {path: f"text_{index}" for index, path in enumerate(texts)}
        self._encoders = nn.ModuleDict({name: TextEncoder(self._specs[path]) for path, name in self._texts.items()})
        plain = [spec for spec in self._specs.values() if not spec.words]
        self.size = sum(sum(spec.categories) or spec.size for spec in plain) + HIDDEN * len(texts)

    def forward(self, observation: Tree) -> Tensor:
        """[M, size]."""
        arrays = dict(leaves(observation))
        parts = [self._encoded(path, arrays[path]) for path in self._specs]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def _encoded(self, path: str, array: Tensor) -> Tensor:
        if path in self._texts:
            return self._encoders[self._texts[path]](array)
        return encode(array, self._specs[path])


def encode(array: Tensor, spec: ArraySpec) -> Tensor:
    """One entry [M, ...] as floats [M, F]."""
    flat = array.reshape(array.shape[0], -1)
    if spec.categories:
        columns = [functional.one_hot(flat[:, i], n) for i, n in enumerate(spec.categories)]
        return torch.cat(columns, -1).float()
    if spec.dtype == "uint8":
        return flat.float() / 255.0
    return flat.float()


class Torso(nn.Module):
    """Made as `Torso(specs, config)`."""

    size: int
    """F."""

    def __init__(self, specs: Tree, config: NetworkConfig) -> None:
        super().__init__()

    def forward(self, observation: Tree) -> Tensor:
        """[M, ...] -> [M, F]."""
        raise NotImplementedError


class Mlp(Torso):
    """Fully connected layers over the joined observation."""

    def __init__(self, specs: Tree, config: NetworkConfig) -> None:
        super().__init__(specs, config)
        self._flat = Flat(specs)
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise([self._flat.size, *config.hidden]):
            layers += [orthogonal(nn.Linear(inputs, outputs), 2**0.5), ACTIVATIONS[config.activation]()]
        self._layers = nn.Sequential(*layers)
        self.size = config.hidden[-1] if config.hidden else self._flat.size

    def forward(self, observation: Tree) -> Tensor:
        """[M, size]."""
        return self._layers(self._flat(observation))
