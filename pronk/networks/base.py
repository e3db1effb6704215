"""The interface of a network to the rest of Pronk.

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
from pronk.networks.values import PlainValue
from pronk.types import EnvSpec, PlainMlp, Tree, Unroll, Value, map_tree


class Output(NamedTuple):
    """A network's output for T observations of B environments."""

    policy: Tensor  # [T, B, P]  parameters of the action distribution: P as `distributions.parameter_count` says
    value: Tensor  # [T, B]      raw values, or [T, B, ...]: whatever `Network.value` understands
    state: Tree  # [B, ...]      the core's state after the last observation


class Network(nn.Module):
    """Derive from this for a network of your own; `network.name=module:Class` then trains it.

    `Class(spec, config)` must implement `forward`. If it is recurrent it must set `state_spec`, a tree of ArraySpec
    without the batch axis; the state is zero at the start of an episode. Weights and buffers must be float32; buffers
    reach the actors as the weights do. Statistics that follow the data derive from `pronk.parameters.Statistics`.
    """

    state_spec: Tree

    def __init__(self, spec: EnvSpec) -> None:
        super().__init__()
        self.spec = spec
        self.state_spec = {}
        self._distribution = distribution_for(spec.action)

    def forward(self, observation: Tree, first: Tensor, state: Tree) -> Output:
        """Compute policy and value of T observations of B environments.

        With learner.threads above 1 the learner may call this in several threads at once, each with some of the
        columns, so it must not keep anything in `self`.

        With learner.precision=bfloat16 the learner calls this under autocast; compute the outputs in float32
        (`networks.heads.in_float32`), because bfloat16 is too coarse for values.

        Args:
            observation: [T, B, ...].
            first: [T, B] bool; the state is reset before these observations.
            state: [B, ...] the core's state before the first observation.
        """
        raise NotImplementedError

    def policy(self, observation: Tree, first: Tensor, state: Tree) -> tuple[Tensor, Tree]:
        """Compute `Output.policy` and `Output.state`, for actors. Override it if leaving out the value saves work."""
        output = self(observation, first, state)
        return output.policy, output.state

    def distribution(self, policy: Tensor, observation: Tree) -> Distribution:
        """Return the distribution of actions; an `action_mask` in the observation excludes options.

        It must not need weights: with actors.inference=central the actors, which have none, call it.
        """
        mask = observation["action_mask"] if self.spec.has_action_mask else None
        return self._distribution(policy, mask)

    def value(self, raw: Tensor, task: Tensor) -> Value:
        """Return what `Output.value` means to the loss. Override it to learn values in another scale.

        Args:
            raw: `Output.value` of T+1 observations, in float32.
            task: [B] int32, the task of each column, an index into `EnvSpec.tasks`.
        """
        return PlainValue(raw)

    def plain_mlp(self) -> PlainMlp | None:
        """Describe `policy` and `distribution` for actors that compute them in NumPy; None if that is not possible."""
        return None

    def observe(self, batch: Unroll) -> None:
        """Add what a batch shows to the sums of the network's `Statistics`, such as a mean of observations.

        Only the learner calls it, once per update and without gradients. Targets of values go through `Value.observe`.
        """

    def initial_state(self, batch: int, device: torch.device | str = "cpu") -> Tree:
        """Return the core's state [B, ...] before an episode."""

        def zeros(leaf: Any) -> Tensor:
            return torch.zeros((batch, *leaf.shape), dtype=getattr(torch, leaf.dtype), device=device)

        return map_tree(zeros, self.state_spec)


TABLE = {"actor_critic": "pronk.networks.actor_critic:ActorCritic"}


def make_network(spec: EnvSpec, config: NetworkConfig) -> Network:
    """Make the configured network."""
    return find("network", config.name, TABLE)(spec, config)


def has_plain_distribution(config: NetworkConfig) -> bool:
    """Return whether the configured network leaves `Network.distribution` as it is: NumPy can sample from it then."""
    made = find("network", config.name, TABLE)
    return isinstance(made, type) and issubclass(made, Network) and made.distribution is Network.distribution
