"""Servers of actions in a thread of the test's process."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from through_grpc import gateway

from pronk.config import ResolvedConfig
from pronk.networks import Network
from pronk.policies import Inference, Policy
from pronk.policies.central_process import Server
from pronk.processes.channel import Channel, pair
from pronk.transport.grpc_actor import GrpcActorPort
from pronk.transport.grpc_requests import GrpcRequests
from pronk.transport.mailboxes import Mailboxes, MailboxTicket, RequestLayouts
from pronk.transport.shared_memory import ReaderTicket, SharedMemoryReader, SharedMemoryTransport

PATIENCE = 20.0  # seconds after which something that waits counts as stuck


def ticket_of(inference: Inference, actor: int) -> dict[str, Any]:
    """What a process of this actor would get: its descriptors are duplicated, as by starting it."""
    ticket = dict(inference.connect(actor).job)
    if "mailbox" in ticket:
        ticket["mailbox"] = duplicated(ticket["mailbox"])
    return ticket


def duplicated(mailbox: dict[str, int]) -> dict[str, int]:
    """A ticket of mailboxes, as another process would get it."""
    return {**mailbox, "socket": os.dup(mailbox["socket"])}


def make_server(inference: Any, config: ResolvedConfig, network: Network) -> Server:
    """The server that the process of `CentralInference` would make."""
    job = inference._process.spec.prepare(0).job
    layouts = RequestLayouts.of(network.spec, network.state_spec, config.actors.envs)
    clients = [Mailboxes(MailboxTicket(**duplicated(ticket)), layouts) for ticket in job["clients"]]
    reader = SharedMemoryReader(ReaderTicket(**job["reader"]))
    return Server(network, reader, clients, config.actors.envs, config.actors.central)


@contextlib.contextmanager
def central(inference: Inference, config: ResolvedConfig, network: Network) -> Iterator[None]:
    server = make_server(inference, config, network)
    channel, theirs = pair()
    thread = threading.Thread(target=server.serve, args=(Channel(theirs.detach()),), daemon=True)
    thread.start()
    try:
        yield
    finally:
        channel.close()
        thread.join(PATIENCE)
    assert not thread.is_alive()


class Way(NamedTuple):
    """What a test needs of one way to choose actions."""

    ticket: dict[str, Any]
    """For the policy."""
    refresh: Callable[[Policy], None]
    """Has the policy use the newest parameters, as an actor does."""


@contextlib.contextmanager
def in_actor(
    inference: Inference, config: ResolvedConfig, network: Network, port: SharedMemoryTransport
) -> Iterator[Way]:
    with port:
        yield Way(ticket_of(inference, 0), lambda policy: policy.refresh(SharedMemoryReader(port.reader())))


@contextlib.contextmanager
def by_server(
    inference: Inference, config: ResolvedConfig, network: Network, port: SharedMemoryTransport
) -> Iterator[Way]:
    with central(inference, config, network), in_actor(inference, config, network, port) as way:
        yield way


@contextlib.contextmanager
def over_grpc(
    inference: Inference, config: ResolvedConfig, network: Network, port: SharedMemoryTransport
) -> Iterator[Way]:
    """Through a gateway, whose learner takes any unroll."""
    layout, nbytes, acting = inference._setup.layout, inference._setup.parameters.nbytes, inference.remote(MOST)
    assert acting is not None
    with (
        pytest.MonkeyPatch.context() as patch,
        central(inference, config, network),
        gateway(layout, 1, nbytes, port, acting, max_actors=MOST) as served,
    ):
        patch.setattr("pronk.transport.session.validate_unroll", lambda *_: None)
        patch.setattr("pronk.transport.validation.Magnitudes.check", lambda *_: None)
        connection = served.connect()
        actor = GrpcActorPort(connection, layout, nbytes, ahead=False)

        def refresh(policy: Policy) -> None:
            with actor.unroll():
                pass
            with port.unrolls(1):
                pass
            with contextlib.suppress(InterruptedError), actor.unroll():
                policy.refresh(actor)
                raise InterruptedError  # sends nothing

        yield Way({**connection.welcome["acting"], "requests": GrpcRequests(connection)}, refresh)


MOST = 8  # actors through the gateway
WAYS = {
    "local": ("local", "shared_memory", in_actor),
    "central": ("central", "shared_memory", by_server),
    "central-grpc": ("central", "grpc", over_grpc),
}
"""By name: `actors.inference`, `transport.name`, and what the learner runs beside its actors."""
