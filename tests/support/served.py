"""Servers of actions in a thread of the test's process."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

from pronk.config import ResolvedConfig
from pronk.networks import Network
from pronk.policies import Inference
from pronk.policies.central_process import Server
from pronk.processes.channel import Channel, pair
from pronk.transport.mailboxes import Mailboxes, MailboxTicket, RequestLayouts
from pronk.transport.shared_memory import ReaderTicket, SharedMemoryReader

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


# For each way to choose actions: what the learner runs beside its actors.
SERVED = {"local": lambda *_: contextlib.nullcontext(), "central": central}
