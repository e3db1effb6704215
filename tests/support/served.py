"""Servers of actions in a thread of the test's process."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

from pronk.config import ResolvedConfig
from pronk.networks import Network
from pronk.policies import Inference
from pronk.policies.central import Mailbox, mailbox_layout
from pronk.policies.central_process import Server
from pronk.processes.channel import Channel, pair
from pronk.transport.shared_memory import ReaderTicket, SharedMemoryReader

PATIENCE = 20.0  # seconds after which something that waits counts as stuck


def ticket_of(inference: Inference, actor: int) -> dict[str, Any]:
    """What a process of this actor would get: its descriptors are duplicated, as by starting it."""
    ticket = dict(inference.connect(actor).job)
    if "socket" in ticket:
        ticket["socket"] = os.dup(ticket["socket"])
    return ticket


def make_server(inference: Any, config: ResolvedConfig, network: Network) -> Server:
    """The server that the process of `CentralInference` would make."""
    job = inference._process.spec.prepare(0).job
    spec = network.spec
    layout = mailbox_layout(spec.observation, spec.action, network.state_spec, config.actors.envs)
    mailboxes = [Mailbox(descriptor, layout) for descriptor in job["mailboxes"]]
    sockets = [socket.socket(fileno=os.dup(descriptor)) for descriptor in job["sockets"]]
    reader = SharedMemoryReader(ReaderTicket(**job["reader"]))
    return Server(network, reader, mailboxes, sockets, config.actors.central)


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


# For each way to choose actions: what the learner runs beside its actors.
SERVED = {"local": lambda *_: contextlib.nullcontext(), "central": central}
