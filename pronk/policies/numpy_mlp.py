"""Acts in the actor's own process without torch: a small fully connected network, computed in NumPy.

Such a network is a few thousand multiplications. Torch spends several times as long on calling its operations as on the
operations themselves, which is most of the time of an actor whose environments are fast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from pronk.policies.numpy_sampler import NumpySampler
from pronk.transport.base import ParameterReader
from pronk.types import Array, ArraySpec, EnvSpec, PlainMlp, Tree, leaves

if TYPE_CHECKING:
    from pronk.networks import Network  # imports torch

LARGEST_PRODUCT = 2**18  # multiplications in one layer, for all environments; beyond it OpenBLAS starts threads
LIMIT = np.array(10.0, np.float32)  # of a normalised number, as in networks/normalising.py; an array: see `encode`

ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda features: np.maximum(features, 0.0, out=features),
    "tanh": lambda features: np.tanh(features, out=features),
}


class NumpyPolicy:
    """See `Policy`."""

    def __init__(self, mlp: PlainMlp, spec: EnvSpec, seed: int) -> None:
        self._block = np.zeros(mlp.nbytes // 4, np.float32)
        tensors = {
            name: self._block[offset : offset + int(np.prod(shape))].reshape(shape)
            for name, (offset, shape) in mlp.places.items()
        }
        linear = {name: (tensors[f"{name}.weight"].T, tensors[f"{name}.bias"]) for name in (*mlp.layers, mlp.head)}
        self._layers = [linear[name] for name in mlp.layers]
        self._activate = ACTIVATIONS[mlp.activation]
        self._weight, self._bias = linear[mlp.head]
        self._log_std = tensors[mlp.log_std] if mlp.log_std else None
        scales = {path: (tensors[f"{name}.factor"], tensors[f"{name}.shift"]) for path, name in mlp.scales.items()}
        entries = [(path, entry) for path, entry in leaves(spec.observation) if path != "action_mask"]
        self._entries = [(path, entry, scales.get(path)) for path, entry in entries]
        self._sampler = NumpySampler(spec, seed)
        self.nbytes = mlp.nbytes
        self.state_spec: Tree = {}  # there is no core
        self.state: Tree = {}
        self.version = -1

    def refresh(self, reader: ParameterReader) -> None:
        """See `Policy.refresh`."""
        parameters = reader.parameters()
        if parameters.version != self.version:
            np.copyto(self._block, parameters.block.view(np.float32))
            self.version = parameters.version

    def act(self, observation: Tree, first: Array) -> tuple[np.ndarray, np.ndarray]:
        """See `Policy.act`."""
        features = self._encoded(observation)
        for weight, bias in self._layers:
            features = features @ weight
            features += bias
            features = self._activate(features)
        policy = features @ self._weight
        policy += self._bias
        if self._log_std is not None:
            return self._sampler.numbers(policy, self._log_std)
        return self._sampler.choices(policy, observation)

    def close(self) -> None:
        """See `Policy.close`."""

    def _encoded(self, observation: Tree) -> np.ndarray:
        """[N, F]."""
        arrays = dict(leaves(observation))
        parts = [encode(arrays[path], entry, scale) for path, entry, scale in self._entries]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, -1)


def encode(array: Array, spec: ArraySpec, scale: tuple[np.ndarray, np.ndarray] | None) -> np.ndarray:
    """One entry [N, ...] as floats [N, F], as networks/torsos.py and normalising.py do it."""
    if scale:
        factor, shift = scale
        array = array.astype(np.float32, copy=False) * factor
        array += shift
        # Not np.clip, nor bounds that are Python's floats: both take longer to call than the rest of it.
        np.maximum(array, -LIMIT, out=array)
        np.minimum(array, LIMIT, out=array)
    flat = array.reshape(len(array), -1)
    if spec.categories:
        columns = [flat[:, [i]] == np.arange(n) for i, n in enumerate(spec.categories)]
        return np.concatenate(columns, -1).astype(np.float32)
    flat = flat.astype(np.float32, copy=False)
    return flat / np.float32(255.0) if spec.dtype == "uint8" else flat


def small_mlp(network: Network, envs: int) -> PlainMlp | None:
    """Return the description of a network that NumPy computes on one core, and faster than torch does; else None."""
    mlp = network.plain_mlp()
    if mlp is None:
        return None
    weights = [mlp.places[f"{name}.weight"][1] for name in (*mlp.layers, mlp.head)]
    return mlp if all(envs * rows * columns <= LARGEST_PRODUCT for rows, columns in weights) else None
