"""Observation -> action, with the newest parameters. The actor's half of the network."""

from __future__ import annotations

import numpy as np
import torch

from pronk.networks import Network
from pronk.parameters import ParameterBlock
from pronk.types import Array, Parameters, Tree, map_tree


class Policy:
    """Acts for N environments, and carries their core states from step to step."""

    def __init__(self, network: Network, count: int, seed: int, deterministic: bool = False) -> None:
        self._network = network.eval()
        self._block = ParameterBlock(network)
        self._generator = torch.Generator().manual_seed(seed)
        self._deterministic = deterministic
        self._state = network.initial_state(count)
        self.version = -1

    def load(self, parameters: Parameters) -> None:
        """Take over newer weights."""
        if parameters.version != self.version:
            self._block.load(torch.from_numpy(parameters.block))
            self.version = parameters.version

    @property
    def parameters_nbytes(self) -> int:
        """Size of the block that `load` takes."""
        return self._block.nbytes

    @property
    def state(self) -> Tree:
        """[N, ...] the core's state before the next observation, as NumPy arrays."""
        return map_tree(lambda tensor: tensor.numpy(), self._state)

    @torch.inference_mode()
    def act(self, observation: Tree, first: Array) -> tuple[np.ndarray, np.ndarray]:
        """Observation [N, ...] and first [N] -> actions [N, ...] and their log probabilities [N]."""
        seen = map_tree(lambda array: torch.from_numpy(array).unsqueeze(0), observation)
        policy, self._state = self._network.policy(seen, torch.from_numpy(first).unsqueeze(0), self._state)
        distribution = self._network.distribution(policy, seen)
        action = distribution.mode() if self._deterministic else distribution.sample(self._generator)
        return action[0].numpy(), distribution.log_prob(action)[0].numpy()
