"""Samples actions in torch, for a network whose `distribution` is not Pronk's own."""

from __future__ import annotations

import numpy as np
import torch

from pronk.networks import Network
from pronk.types import Tree, map_tree


class NetworkSampler:
    """Draws actions from what the network's `distribution` returns."""

    def __init__(self, network: Network, seed: int) -> None:
        # Frees the weights. If a user's `distribution` needs them, it fails at once instead of returning wrong values.
        self._network = network.to("meta")
        self._generator = torch.Generator().manual_seed(seed)

    @torch.inference_mode()
    def sample(self, policy: np.ndarray, observation: Tree) -> tuple[np.ndarray, np.ndarray]:
        """Return actions [N, ...] and log probabilities [N], from `Output.policy` [N, P]."""
        timed = map_tree(lambda array: torch.from_numpy(array).unsqueeze(0), observation)  # T = 1
        distribution = self._network.distribution(torch.from_numpy(policy).unsqueeze(0), timed)
        action = distribution.sample(self._generator)
        return action[0].numpy(), distribution.log_prob(action)[0].numpy()
