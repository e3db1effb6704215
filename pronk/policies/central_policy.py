"""The actor's half of central inference: it sends observations to the server, and samples from what comes back."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from pronk.config import ResolvedConfig
from pronk.layout import specs_from_plain
from pronk.policies.numpy_sampler import NumpySampler
from pronk.transport.base import Closed, ParameterReader
from pronk.transport.mailboxes import BELLS, Mailboxes, MailboxTicket, RequestLayouts
from pronk.transport.memory import fence
from pronk.transport.shared_memory import ReaderTicket, SharedMemoryReader
from pronk.types import Array, EnvSpec, Tree, map_tree


class Exchange(Protocol):
    """How requests reach the server, one at a time: `MailboxExchange`, or `transport.grpc_requests.GrpcRequests`."""

    @property
    def version(self) -> int:
        """A version of the parameters that later requests are answered with, or with newer ones."""
        ...

    @property
    def state(self) -> Tree:
        """[N, ...] the core's state after the last answer, in arrays that the next `ask` leaves alone."""
        ...

    def ask(self, observation: Tree, first: Array) -> np.ndarray:
        """Return `Output.policy` [N, P], which may be overwritten until the next call. Raises `Closed`."""
        ...

    def close(self) -> None:
        """Release what it holds. May be called twice."""
        ...


class Sampler(Protocol):
    """Draws actions from distributions whose parameters the server has computed."""

    def sample(self, policy: np.ndarray, observation: Tree) -> tuple[np.ndarray, np.ndarray]:
        """Return actions [N, ...] and log probabilities [N], from `Output.policy` [N, P]."""
        ...


class CentralPolicy:
    """See `Policy`."""

    def __init__(self, exchange: Exchange, sampler: Sampler, state_spec: Tree, nbytes: int) -> None:
        self._exchange, self._sampler = exchange, sampler
        self.state_spec, self.nbytes = state_spec, nbytes

    @property
    def version(self) -> int:
        """See `Policy`. The server reads the parameters after each request, so it never uses older ones."""
        return self._exchange.version

    @property
    def state(self) -> Tree:
        """See `Policy.state`."""
        return self._exchange.state

    def refresh(self, reader: ParameterReader) -> None:
        """Do nothing: the server uses the newest parameters, whatever actors.sync_every says."""

    def act(self, observation: Tree, first: Array) -> tuple[np.ndarray, np.ndarray]:
        """See `Policy.act`."""
        return self._sampler.sample(self._exchange.ask(observation, first), observation)

    def close(self) -> None:
        """See `Policy.close`."""
        self._exchange.close()


class MailboxExchange:
    """See `Exchange`. Over memory that is shared with the server."""

    def __init__(self, layouts: RequestLayouts, ticket: dict[str, Any]) -> None:
        self._mailboxes = Mailboxes(MailboxTicket(**ticket["mailbox"]), layouts)
        self._mailboxes.players = 1
        self._mailbox = self._mailboxes[0]
        self._published = SharedMemoryReader(ReaderTicket(**ticket["reader"]))
        # The server may still be answering the last request k of a killed process of this actor, and will write the
        # next state to half (k + 1) % 2. Skipping a number makes the first request here start from the other half.
        self._number = self._mailbox.requested + 1
        map_tree(lambda array: array.fill(0), self._mailbox.state_before(self._number + 1))

    @property
    def version(self) -> int:
        """See `Exchange`."""
        return self._published.version

    @property
    def state(self) -> Tree:
        """See `Exchange`."""
        return map_tree(np.copy, self._mailbox.state_before(self._number + 1))

    def ask(self, observation: Tree, first: Array) -> np.ndarray:
        """See `Exchange`."""
        map_tree(np.copyto, self._mailbox.observation, observation)
        np.copyto(self._mailbox.first, first)
        self._number += 1
        self._mailbox.request(self._number)
        try:
            self._mailboxes.ring()
            while self._mailbox.answered != self._number:
                if not self._mailboxes.socket.recv(BELLS):
                    raise Closed
        except ConnectionError as error:
            raise Closed from error
        fence()
        return self._mailbox.policy

    def close(self) -> None:
        """See `Exchange`."""
        self._mailboxes.socket.close()


def make_central_policy(config: ResolvedConfig, spec: EnvSpec, seed: int, ticket: dict[str, Any]) -> CentralPolicy:
    """Make the policy from what the learner sent; without torch, unless the network has a distribution of its own."""
    state_spec: Tree
    sampler: Sampler
    if sizes := ticket["sizes"]:
        state_spec, nbytes = specs_from_plain(sizes["state"]), sizes["nbytes"]
        sampler = NumpySampler(spec, seed)
    else:
        from pronk.networks import make_network
        from pronk.parameters import block_nbytes
        from pronk.policies.network_sampler import NetworkSampler

        network = make_network(spec, config.network)
        state_spec, nbytes = network.state_spec, block_nbytes(network)
        sampler = NetworkSampler(network, seed)
    layouts = RequestLayouts.of(spec, state_spec, config.actors.envs)
    exchange = ticket["requests"].open(layouts) if "requests" in ticket else MailboxExchange(layouts, ticket)
    return CentralPolicy(exchange, sampler, state_spec, nbytes)
