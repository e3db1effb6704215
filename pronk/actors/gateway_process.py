"""What the gateway's process runs; `gateway.py` starts it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import resource
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from pronk.processes.channel import Channel, ChannelClosed
from pronk.processes.freed_memory import keep_freed_memory
from pronk.processes.messages import Alive, Message
from pronk.types import UserError

# What gRPC's log says of connections that failed before the first message, and what it means.
MEANINGS = {
    "WRONG_VERSION_NUMBER|HTTP_REQUEST": "a TLS handshake failed: plain text, or random bytes, where TLS was due",
    "CERTIFICATE_UNKNOWN|UNKNOWN_CA|BAD_CERTIFICATE": "a TLS handshake failed: the actor does not trust the learner's "
    "certificate; is its certificate authority (ca) the right one?",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "a TLS handshake failed: the actor showed no certificate",
    "CERTIFICATE_VERIFY_FAILED": "a TLS handshake failed: the actor's certificate is not signed by gateway.client_ca",
    "Handshake failed": "a TLS handshake failed",
    "Handshake timed out": "a connection that stayed silent",
}
ANY_SIGN = re.compile("|".join(MEANINGS))
ALIVE_SECONDS = 1.0  # between heartbeats
SWITCH_SECONDS = 0.0005  # gRPC's thread hands every event to asyncio's, which should not wait long for the lock
GRPC_LINE = re.compile(r"[IWEF]\d{4} [\d:.]+ +\d+ ")  # other lines of standard error are kept as they are
CONNECTED = "adding handshaker endpoint_info"  # once for each connection


def main(job: dict[str, Any], channel: Channel) -> None:
    """Serve until the learner closes its port."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # only the learner ends this process
    allow_many_connections()
    keep_freed_memory()
    sys.setswitchinterval(SWITCH_SECONDS)
    log = os.dup(2)
    os.environ.setdefault("GRPC_VERBOSITY", "INFO")
    os.environ.setdefault("GRPC_TRACE", "handshaker")  # logs connections that fail before Python sees them
    from pronk.layout import UnrollLayout
    from pronk.transport.gateway import Gateway
    from pronk.transport.gateway_log import GatewayLog
    from pronk.transport.gateway_requests import GatewayRequests
    from pronk.transport.gateway_rules import Rules
    from pronk.transport.mailboxes import MailboxTicket, RequestLayouts
    from pronk.transport.security import Credentials
    from pronk.transport.shared_memory import Ticket

    notes = GatewayLog(lambda line: write_if_possible(log, line))
    read_grpc_log(notes, log)
    credentials = Credentials(
        **{name: value and value.encode() if name != "token" else value for name, value in job["credentials"].items()}
    )
    rules = Rules(
        layout=UnrollLayout.from_plain(job["layout"]), life=job["life"], credentials=credentials, **job["rules"]
    )
    assert rules.layout.digest == job["digest"], "the layout changed on its way"

    def send(message: Message) -> None:
        with contextlib.suppress(ChannelClosed):  # the learner is gone; its socket reports that, too
            channel.send(message)

    async def report_alive() -> None:
        while True:
            await asyncio.sleep(ALIVE_SECONDS)
            send(Alive())

    requests = None
    if job["requests"]:
        layouts = RequestLayouts.from_plain(job["requests"]["layouts"])
        requests = GatewayRequests(MailboxTicket(**job["requests"]["ticket"]), layouts)

    async def serve() -> None:
        heartbeat = asyncio.create_task(report_alive())
        gateway = Gateway(rules, Ticket(**job["ticket"]), notes, send, requests)
        await gateway.serve(job["address"], job["own_address"])
        heartbeat.cancel()

    try:
        asyncio.run(serve())
    except RuntimeError as error:  # gRPC's, when it cannot bind
        if job["life"]:  # an earlier gateway could bind, so a restart may succeed
            raise
        raise UserError(f"gateway.address: cannot listen on {job['address']}: {error}") from None
    notes.close()


def write_if_possible(descriptor: int, line: str) -> None:
    """Write without waiting; a line that does not fit is dropped."""
    try:
        os.write(descriptor, line.encode(errors="replace"))
    except OSError:
        return


def allow_many_connections() -> None:
    """Raise the limit of descriptors, one per connection: the usual 1,024 is too low for a cluster."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if most == resource.RLIM_INFINITY else most
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    except (OSError, ValueError):
        return


def read_grpc_log(notes: Any, log: int) -> None:
    """Note why gRPC refused connections before Python saw them: it writes the reason to standard error."""
    reader, writer = os.pipe()
    os.dup2(writer, 2)
    os.close(writer)
    keep = functools.partial(write_if_possible, log)
    threading.Thread(target=sort_lines, args=(reader, notes, keep), daemon=True).start()


def sort_lines(descriptor: int, notes: Any, keep: Callable[[str], None]) -> None:
    """Turn gRPC's lines about failed connections into refusals; keep what is not gRPC's."""
    with open(descriptor, errors="replace") as lines:
        for line in lines:
            if not GRPC_LINE.match(line):
                keep(line)
            elif CONNECTED in line:
                notes.connected += 1
            elif ANY_SIGN.search(line):
                meaning = next(meaning for sign, meaning in MEANINGS.items() if re.search(sign, line))
                notes.refused("somebody", "", meaning)
