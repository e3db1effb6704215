"""A target network: a copy of the network that stands still for a number of updates (IMPACT, arXiv 1912.00167)."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from pronk.networks.base import Network
from pronk.parameters import ParameterBlock
from pronk.types import Unroll, map_tree


class TargetNetwork:
    """A copy that takes over the learner's weights and buffers every `updates` updates."""

    def __init__(self, network: Network, updates: int) -> None:
        self._network, self._updates = copy.deepcopy(network), updates
        self._block = ParameterBlock(self._network)

    @property
    def values(self) -> Tensor:
        """All weights and buffers in one vector; may be overwritten in place."""
        return self._block.values

    @torch.no_grad()
    def log_prob(self, batch: Unroll) -> Tensor:
        """[T, B] log pi_target(a_t | x_t) of a batch."""
        acted_on = map_tree(lambda array: array[:-1], batch.observation)
        policy, _ = self._network.policy(acted_on, batch.first[:-1], batch.state)
        return self._network.distribution(policy.float(), acted_on).log_prob(batch.action)

    def follow(self, values: Tensor, version: int) -> None:
        """Take over the learner's block if it is time. `version` is the number of updates made."""
        if version % self._updates == 0:
            self._block.values.copy_(values)
