"""A gateway in a thread of the test's process, and what a test needs to talk to it in any manner, good or bad."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import numpy as np

from pronk.layout import UnrollLayout
from pronk.policies import RemoteActing
from pronk.processes.messages import Listening, Message
from pronk.transport.frames import METHOD, PROTOCOL, TOKEN, Kind, pack, pack_json
from pronk.transport.gateway import Gateway
from pronk.transport.gateway_log import GatewayLog
from pronk.transport.gateway_requests import GatewayRequests
from pronk.transport.gateway_rules import Rules
from pronk.transport.grpc_actor import Connection, GrpcActorPort
from pronk.transport.mailboxes import MailboxTicket, RequestLayouts
from pronk.transport.security import Credentials
from pronk.transport.shared_memory import SharedMemoryTransport
from pronk.types import ActionSpec, ArraySpec, EnvSpec, Parameters, Unroll, unroll_specs

PATIENCE = 20.0  # seconds after which something that waits counts as stuck
NBYTES = 1000
LAYOUT = UnrollLayout(
    unroll_specs(
        EnvSpec({"view": ArraySpec((3,), "float32"), "label": ArraySpec((), "int64", (5,))}, ActionSpec((), (3,))),
        {"core": ArraySpec((2,), "float32")},
        length=4,
        envs=2,
    )
)


def honest(unroll: Unroll, version: int = 0, value: float = 0.0) -> None:
    """Fill with what an actor could send."""
    for name, array in unroll._asdict().items():
        if not isinstance(array, dict):
            array[...] = np.nan if name == "episode_return" else 0
    unroll.observation["view"][...] = value
    unroll.observation["label"][...] = 4
    unroll.state["core"][...] = 0.5
    unroll.action[...] = 2
    unroll.log_prob[...] = -1.0
    unroll.valid[...] = True
    unroll.version[...] = version


@dataclass
class Served:
    """A gateway at work, and the learner's port behind it."""

    address: str
    port: SharedMemoryTransport
    gateway: Gateway
    log: list[str]
    events: list[Message]
    tls: Credentials = field(default_factory=Credentials)

    def connect(self, **changes: Any) -> Connection:
        """As an actor would."""
        return Connection(self.address, replace(self.tls, **changes), 8.0)

    def join(self, layout: UnrollLayout = LAYOUT) -> GrpcActorPort:
        return GrpcActorPort(self.connect(), layout, NBYTES)


@contextlib.contextmanager
def gateway(
    layout: UnrollLayout = LAYOUT,
    slots: int = 2,
    nbytes: int = NBYTES,
    port: SharedMemoryTransport | None = None,
    acting: RemoteActing | None = None,
    **changes: Any,
) -> Iterator[Served]:
    """Serve until the block is left. `port` is the learner's, if there is one already."""
    rules = Rules(
        **{
            "layout": layout,
            "parameters_nbytes": nbytes,
            "slots": slots,
            "max_actors": 8,
            "first_index": 0,
            "life": 0,
            "welcome": {"compression": "none", "learner": "test", "acting": acting.ticket if acting else None},
            "parameters_dtype": "float32",
            "timeout_seconds": 600.0,
            "keepalive_seconds": 8.0,
            "credentials": Credentials(),
            "inner_token": "inner",
            **changes,
        }
    )
    log: list[str] = []
    events: list[Message] = []
    listening = threading.Event()
    made: list[Gateway] = []

    def tell(event: Message) -> None:
        events.append(event)
        if isinstance(event, Listening):
            listening.set()

    if port is None:
        port = SharedMemoryTransport(layout, nbytes, actors=0, slots=slots, gateway_slots=rules.max_actors * slots)
        port.publish(Parameters(0, np.zeros(nbytes, np.uint8)))
    ticket, inherited = port.connect(0)
    mine = replace(ticket, socket=os.dup(ticket.socket))
    inherited.__exit__(None, None, None)

    async def serve() -> None:
        made.append(Gateway(rules, mine, GatewayLog(log.append), tell, requests_of(acting)))
        await made[0].serve("127.0.0.1:0")

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert listening.wait(PATIENCE), log
    shown = rules.credentials
    try:
        with port:
            yield Served(
                events[0].address, port, made[0], log, events, Credentials(shown.token, authority=shown.certificate)
            )
    finally:
        thread.join(PATIENCE)
    assert not thread.is_alive()


def requests_of(acting: RemoteActing | None) -> GatewayRequests | None:
    """What a process of the gateway would make: its descriptors are duplicated, as by starting it."""
    if acting is None:
        return None
    ticket, layouts = acting.gateway.job["ticket"], RequestLayouts.from_plain(acting.gateway.job["layouts"])
    return GatewayRequests(MailboxTicket(**{**ticket, "socket": os.dup(ticket["socket"])}), layouts)


class Certificate(NamedTuple):
    """Files."""

    certificate: Path
    private_key: Path


def make_certificate(folder: Path, name: str = "learner", signed_by: Certificate | None = None) -> Certificate:
    """Good for 127.0.0.1; signed by itself, or by another."""
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    sign = ["-CA", str(signed_by.certificate), "-CAkey", str(signed_by.private_key)] if signed_by else []
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", str(made.private_key), "-out", str(made.certificate), "-days", "2"),
            *("-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:10.77.0.1", *sign),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return made


def talk_raw(served: Served, messages: list[bytes], token: str | None = None) -> tuple[Any, str]:
    """Send these messages as they are; the status and the reason that come back."""
    channel = grpc.insecure_channel(served.address, [("grpc.max_send_message_length", -1)])
    try:
        call = channel.stream_stream(METHOD, None, None)(
            iter(messages), metadata=[(TOKEN, token)] if token else None, timeout=PATIENCE
        )
        try:
            for _ in call:
                pass
        except grpc.RpcError as error:
            return error.code(), error.details()
        return call.code(), call.details()
    finally:
        channel.close()


def hello(**changes: Any) -> bytes:
    return pack_json(Kind.HELLO, {"protocol": PROTOCOL, "name": "test", **changes})


def ready(layout: UnrollLayout = LAYOUT) -> bytes:
    return pack_json(Kind.READY, {"layout": layout.digest})


def unroll_message(number: int = 0, **spoilt: Any) -> bytes:
    """An honest unroll, but for what is given."""
    block = bytearray(LAYOUT.nbytes)
    unroll = LAYOUT.view(block)
    honest(unroll)
    for name, value in spoilt.items():
        getattr(unroll, name)[...] = value
    return pack(Kind.UNROLL, block, number)
