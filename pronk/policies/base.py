"""What every policy looks like to the actor: N observations in, N actions out."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from pronk.config import ResolvedConfig
from pronk.config.named import find
from pronk.networks import Network
from pronk.types import Array, Parameters, Tree


class Policy(Protocol):
    """Acts for N environments and keeps the state of the network's core for each of them."""

    version: int
    """Number of updates that made the parameters in use; -1 before the first `load`.

    The actor reads it once per unroll, before the first `act`. If the parameters can change within an unroll, as where
    a server acts for many actors, this must be the oldest version that the unroll may see: the reported lag is then
    never too small. The importance weights are exact in any case, because `act` returns the log probability."""

    @property
    def state(self) -> Tree:
        """[N, ...] the core's state before the next observation, as NumPy arrays that the next `act` leaves alone."""
        ...

    def load(self, parameters: Parameters) -> None:
        """Use these parameters from now on. The block may be overwritten after the call."""
        ...

    def act(self, observation: Tree, first: Array) -> tuple[np.ndarray, np.ndarray]:
        """Choose an action for each of N observations, and return them with their log probabilities.

        Args:
            observation: [N, ...] NumPy arrays.
            first: [N] bool; where it is True an episode starts, and the core's state is reset before the observation.

        Returns:
            Actions [N, ...] in the agent's units (`types.ActionSpec`), and log mu(a|x) [N] in float32.
        """
        ...

    def close(self) -> None:
        """Release whatever the policy holds. May be called twice."""
        ...


TABLE = {"local": "pronk.policies.local:LocalPolicy"}


def make_policy(config: ResolvedConfig, network: Network, seed: int) -> Policy:
    """Make the configured policy (`actors.inference`) for one actor's environments."""
    return find("policy", config.actors.inference, TABLE)(network, config.actors.envs, seed)
