"""Torsos: a tree of observations [M, ...] -> features [M, F], for M = T x B situations at once.

Every entry of the observation is encoded according to its spec (labels one-hot, bytes scaled to [0, 1], the rest as it
is), and the entries are joined.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional

from pronk.config import NetworkConfig
from pronk.networks.initialise import orthogonal
from pronk.networks.labels import LabelEncoder, has_many_classes
from pronk.networks.layers import Layers, Tanh
from pronk.networks.text import TextEncoder
from pronk.types import ArraySpec, Tree, leaves

ACTIVATIONS = {"relu": nn.ReLU, "tanh": Tanh}


class Flat(nn.Module):
    """The observation as one vector of floats; texts, and labels of very many classes, have an encoder each."""

    def __init__(self, specs: Tree) -> None:
        super().__init__()
        self._specs = dict(leaves(specs))
        made = {path: encoder for path, spec in self._specs.items() if (encoder := encoder_for(spec))}
        # Names of modules may hold no dots, paths may.
        self._names = {path: f"entry_{index}" for index, path in enumerate(made)}
        self._encoders = nn.ModuleDict({self._names[path]: encoder for path, encoder in made.items()})
        plain = [spec for path, spec in self._specs.items() if path not in made]
        self.is_plain = not made
        self.size = sum(sum(spec.categories) or spec.size for spec in plain)
        self.size += sum(encoder.size for encoder in made.values())

    def forward(self, observation: Tree) -> Tensor:
        """[M, size]."""
        arrays = dict(leaves(observation))
        parts = [self._encoded(path, arrays[path]) for path in self._specs]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def _encoded(self, path: str, array: Tensor) -> Tensor:
        if path in self._names:
            return self._encoders[self._names[path]](array)
        return encode(array, self._specs[path])


def encoder_for(spec: ArraySpec) -> TextEncoder | LabelEncoder | None:
    """Make the encoder of an entry that needs weights of its own."""
    if spec.words:
        return TextEncoder(spec)
    return LabelEncoder(spec) if has_many_classes(spec) else None


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
        has_norm = config.layer_norm is True
        for inputs, outputs in itertools.pairwise([self._flat.size, *config.hidden]):
            layers += hidden_layer(inputs, outputs, config.activation, has_norm)
        self._layers = Layers(*layers)
        self.size = config.hidden[-1] if config.hidden else self._flat.size
        self.activation = config.activation
        self.is_plain = not has_norm and self._flat.is_plain
        """Whether it is fully connected layers and nothing else."""

    def forward(self, observation: Tree) -> Tensor:
        """[M, size]."""
        return self._layers(self._flat(observation))


def hidden_layer(inputs: int, outputs: int, activation: str, layer_norm: bool) -> list[nn.Module]:
    """A fully connected layer and its activation, with a LayerNorm between them if asked for."""
    norm = [nn.LayerNorm(outputs)] if layer_norm else []
    return [orthogonal(nn.Linear(inputs, outputs), 2**0.5), *norm, ACTIVATIONS[activation]()]
