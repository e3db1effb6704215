"""The two sides of choosing actions: `Policy`, which the actor uses, and `Inference`, the learner's side.

learner's process                                   actor's process
Inference --connect(actor): ticket, descriptors-->  Inference.policy(ticket) -> Policy --action--> Actor
    '- start, watch: whatever all policies share, such as a server
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from pronk.config import ResolvedConfig
from pronk.config.named import find
from pronk.layout import UnrollLayout
from pronk.processes.supervisor import Start
from pronk.transport.base import ParameterReader
from pronk.transport.shared_memory import ReaderTicket
from pronk.types import Array, EnvSpec, PlainMlp, Tree, UserError


class Policy(Protocol):
    """Acts for N environments and keeps the state of the network's core for each of them."""

    state_spec: Tree
    """Of the core's state, without the leading axis."""
    nbytes: int
    """Size of the parameters that the learner publishes."""

    @property
    def version(self) -> int:
        """Number of updates that made the parameters in use, once `refresh` was called.

        The actor reads it once per unroll, before the first `act`. If the parameters can change within an unroll, as
        where a server acts for many actors, this must be the oldest version that the unroll may see: the reported lag
        is then never too small. The importance weights are exact in any case, because `act` returns the log
        probability.
        """
        ...

    @property
    def state(self) -> Tree:
        """[N, ...] the core's state before the next observation, as NumPy arrays that the next `act` leaves alone."""
        ...

    def refresh(self, reader: ParameterReader) -> None:
        """Use the newest parameters from now on. What the reader returns may be overwritten after the call."""
        ...

    def act(self, observation: Tree, first: Array) -> tuple[np.ndarray, np.ndarray]:
        """Choose an action for each of N observations, and return them with their log probabilities.

        Args:
            observation: [N, ...] NumPy arrays.
            first: [N] bool; where it is True an episode starts, and the core's state is reset before the observation.

        Returns:
            Actions [N, ...] in the agent's units (`types.ActionSpec`), and log mu(a|x) [N] in float32.

        Raises:
            Closed: the learner is gone.
        """
        ...

    def close(self) -> None:
        """Release whatever the policy holds. May be called twice."""
        ...


@dataclass(frozen=True)
class InferenceSetup:
    """What an `Inference` is made from."""

    config: ResolvedConfig
    layout: UnrollLayout
    """Of the actors' unrolls, which has the shapes of observations, actions and states."""
    mlp: PlainMlp | None
    """The learner's network, if actors need no torch to compute it."""
    parameters: ReaderTicket
    """For a process that reads the newest parameters."""
    logs: Path
    say: Callable[[str], None]
    """Shows the user a line."""


@dataclass(frozen=True)
class RemoteActing:
    """How actors that play through the gateway get their actions from the learner's machine."""

    gateway: Start
    """What the gateway's process needs to forward requests: a `MailboxTicket`, `layouts`, and descriptors."""
    ticket: dict[str, Any]
    """What the actors' policies need: plain data. The actor adds `requests`, its end of the stream."""


class Inference:
    """A way to choose actions: the learner's half, and how an actor makes its policy.

    A `with` block around the actors' own: leaving it ends whatever was started. An implementation derives from this
    class and must have `policy`. By default nothing is shared, and nothing runs beside the actors.
    """

    def __init__(self, setup: InferenceSetup) -> None:
        self._setup = setup

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    @staticmethod
    def check(config: ResolvedConfig) -> None:
        """Raise UserError if the configuration does not suit this inference. Called before anything is started."""

    @staticmethod
    def policy(config: ResolvedConfig, spec: EnvSpec, seed: int, ticket: dict[str, Any]) -> Policy:
        """Make the policy of an actor's environments, in its process.

        `ticket` is the job of what `connect` returned; in an actor that plays through the gateway, the ticket of
        `remote`.
        """
        raise NotImplementedError

    def start(self) -> None:
        """Start what the policies share. Actors start at the same time, and wait for it if they have to."""

    def connect(self, actor: int) -> Start:
        """Return what a new process of this actor needs for its policy: a ticket (plain data), and descriptors."""
        return Start({})

    def remote(self, actors: int) -> RemoteActing | None:
        """Return how so many actors that play through the gateway get their actions. Called once, before `start`.

        None: they choose them by themselves, as with actors.inference=local.
        """
        return None

    def watch(self) -> None:
        """Restart what died or hangs; raise when a restart would not help (`SupervisedProcess.poll`). Called often."""

    def serving_seconds(self) -> float:
        """Return for how long actors have been able to get actions without interruption.

        An actor that was silent for longer than this may have waited for its actions, so it does not count as hanging.
        """
        return float("inf")


TABLE = {
    "local": "pronk.policies.local:LocalInference",
    "central": "pronk.policies.central:CentralInference",
}


def find_inference(config: ResolvedConfig) -> type[Inference]:
    """Return the configured way to choose actions (`actors.inference`)."""
    return find("actors.inference", config.actors.inference, TABLE)


def check_inference(config: ResolvedConfig) -> None:
    """Raise UserError for an unknown way to choose actions, or one that does not suit the configuration."""
    inference = find_inference(config)
    inference.check(config)
    name, is_behind_gateway = config.actors.inference, config.transport.name == "grpc"
    if is_behind_gateway and name != "local" and inference.remote is Inference.remote:
        raise UserError(
            f"actors.inference={name} has no `remote`, which transport=grpc needs: without it, actors would choose as "
            "with actors.inference=local; write one, or use transport=shared_memory"
        )


def make_inference(setup: InferenceSetup) -> Inference:
    """Make the configured inference: the learner's half."""
    return find_inference(setup.config)(setup)


def make_policy(config: ResolvedConfig, spec: EnvSpec, seed: int, ticket: dict[str, Any]) -> Policy:
    """Make the configured policy for one actor's environments."""
    return find_inference(config).policy(config, spec, seed, ticket)
