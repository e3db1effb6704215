"""Acts with a torch network, in this process."""

from __future__ import annotations

import numpy as np
import torch

from pronk.networks import Network
from pronk.parameters import ParameterBlock
from pronk.transport.base import ParameterReader
from pronk.types import Array, Tree, map_tree


class TorchPolicy:
    """See `Policy`. With `deterministic` it takes the most likely action instead of a sample."""

    def __init__(self, network: Network, count: int, seed: int, deterministic: bool = False) -> None:
        self._network = network.eval()
        self._block = ParameterBlock(network)
        self._generator = torch.Generator().manual_seed(seed)
        self._deterministic = deterministic
        self._state = network.initial_state(count)
        self.state_spec, self.nbytes = network.state_spec, self._block.nbytes
        self.version = -1

    @property
    def state(self) -> Tree:
        """See `Policy.state`."""
        return map_tree(lambda tensor: tensor.numpy(), self._state)

    def refresh(self, reader: ParameterReader) -> None:
        """See `Policy.refresh`."""
        parameters = reader.parameters()
        if parameters.version != self.version:
            self._block.load(torch.from_numpy(parameters.block))
            self.version = parameters.version

    @torch.inference_mode()
    def act(self, observation: Tree, first: Array) -> tuple[np.ndarray, np.ndarray]:
        """See `Policy.act`."""
        timed = map_tree(lambda array: torch.from_numpy(array).unsqueeze(0), observation)  # T = 1
        policy, self._state = self._network.policy(timed, torch.from_numpy(first).unsqueeze(0), self._state)
        distribution = self._network.distribution(policy, timed)
        action = distribution.mode() if self._deterministic else distribution.sample(self._generator)
        return action[0].numpy(), distribution.log_prob(action)[0].numpy()

    def close(self) -> None:
        """See `Policy.close`."""
