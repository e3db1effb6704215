"""What every network looks like to the rest of Pronk.

A network is built from a spec, not from an environment, and always runs over [T, B]: acting is T = 1, so the actor and
the learner cannot disagree.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pronk.config import NetworkConfig
from pronk.config.named import find
from pronk.networks.distributions import Distribution, distribution_for
from pronk.types import EnvSpec, Tree, map_tree


class Output(NamedTuple):
    """What a network makes of T observations of B environments."""

    policy: Tensor  # [T, B, P]  parameters of the action distribution: P as `distributions.parameter_count` says
    value: Tensor  # [T, B]
    state: Tree  # [B, ...]      the core's state after the last observation


class Network(nn.Module):
    """Derive from this for a network of your own; `network.name=module:Class` then trains it.

    `Class(spec, config)` must set `state_spec` if it is recurrent (a tree of ArraySpec without the batch axis; it is
    zero at the start of an episode), and implement `forward`.
    """

    state_spec: Tree

    def __init__(self, spec: EnvSpec) -> None:
        super().__init__()
        self.spec = spec
        self.state_spec = {}
        self._distribution = distribution_for(spec.action)

    def forward(self, observation: Tree, first: Tensor, state: Tree) -> Output:
        """Observation [T, B, ...], first [T, B] (reset the state before it), state [B, ...] -> Output."""
        raise NotImplementedError

    def policy(self, observation: Tree, first: Tensor, state: Tree) -> tuple[Tensor, Tree]:
        """The policy's half of `forward`: override it where leaving out the value saves work."""
        output = self(observation, first, state)
        return output.policy, output.state

    def distribution(self, policy: Tensor, observation: Tree) -> Distribution:
        """The distribution of actions; an `action_mask` in the observation rules choices out."""
        mask = observation["action_mask"] if self.spec.has_action_mask else None
        return self._distribution(policy, mask)

    def initial_state(self, batch: int, device: torch.device | str = "cpu") -> Tree:
        """The core's state before an episode."""

        def zeros(leaf: Any) -> Tensor:
            return torch.zeros((batch, *leaf.shape), dtype=getattr(torch, leaf.dtype), device=device)

        return map_tree(zeros, self.state_spec)


TABLE = {"actor_critic": "pronk.networks.actor_critic:ActorCritic"}


def make_network(spec: EnvSpec, config: NetworkConfig) -> Network:
    """The configured network."""
    return find("network", config.name, TABLE)(spec, config)
