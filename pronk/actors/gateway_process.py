"""What the gateway's process runs; `gateway.py` starts it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from pronk.processes.freed_memory import keep_freed_memory
from pronk.processes.lifeline import die_with_parent

# What gRPC's own log says of those who never got as far as a conversation, and what it means.
MEANINGS = {
    "WRONG_VERSION_NUMBER|HTTP_REQUEST": "a TLS handshake failed: plain text, or random bytes, where TLS was due",
    "CERTIFICATE_UNKNOWN|UNKNOWN_CA|BAD_CERTIFICATE": "a TLS handshake failed: the actor does not trust the learner's "
    "certificate (is its --ca the right one?)",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "a TLS handshake failed: the actor showed no certificate",
    "CERTIFICATE_VERIFY_FAILED": "a TLS handshake failed: the actor's certificate is not signed by gateway.client_ca",
    "Handshake failed": "a TLS handshake failed",
    "Handshake timed out": "a connection that stayed silent",
}
SWITCH_SECONDS = 0.0005  # gRPC's thread hands every event to asyncio's, and should not wait long for its turn
OURS = r"^[IWEF]\d{4} [\d:.]+ +\d+ "  # how gRPC's lines begin; whatever else is written to stderr is kept as it is


def main(job: dict[str, Any]) -> None:
    """Serve until the learner is gone."""
    die_with_parent(job["parent"])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the learner's business; when it goes, so does this
    allow_many_connections()
    keep_freed_memory()
    sys.setswitchinterval(SWITCH_SECONDS)
    log = os.dup(2)
    os.environ.setdefault("GRPC_VERBOSITY", "INFO")
    os.environ.setdefault("GRPC_TRACE", "handshaker")  # tells of those who never got as far as a conversation
    from pronk.layout import UnrollLayout
    from pronk.transport.gateway import Gateway, Rules
    from pronk.transport.notes import Notes
    from pronk.transport.security import Pass
    from pronk.transport.shared_memory import Ticket

    notes = Notes(lambda line: ignore_full(log, line))
    notes.write(f"the gateway starts (life {job['life']}, pid {os.getpid()})")
    listen_to_grpc(notes, log)
    shown = Pass(
        **{name: value and value.encode() if name != "token" else value for name, value in job["pass"].items()}
    )
    rules = Rules(layout=UnrollLayout.from_plain(job["layout"]), life=job["life"], shown=shown, **job["rules"])
    assert rules.layout.digest == job["digest"], "the layout does not survive the journey"

    async def serve() -> None:
        gateway = Gateway(rules, Ticket(**job["ticket"]), notes, tell)
        await gateway.serve(job["address"], job["own_address"])

    try:
        asyncio.run(serve())
    except RuntimeError as error:  # gRPC's, when it cannot bind
        notes.write(f"the gateway fails: {error}")
        tell({"failed": str(error)})
        raise SystemExit(1) from None
    notes.close()
    notes.write("the gateway ends: the learner is gone")
    os._exit(0)  # gRPC's threads need not be waited for


def tell(event: dict[str, Any]) -> None:
    """To the learner, which reads it when it has time; what does not fit in the pipe is not worth waiting for."""
    os.set_blocking(1, False)
    ignore_full(1, json.dumps(event) + "\n")


def ignore_full(descriptor: int, line: str) -> None:
    """Write, but not at any price."""
    try:
        os.write(descriptor, line.encode(errors="replace"))
    except OSError:
        return


def allow_many_connections() -> None:
    """Each is a descriptor; the usual limit of 1,024 is too low for a cluster."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if most == resource.RLIM_INFINITY else most
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    except (OSError, ValueError):
        return


def listen_to_grpc(notes: Any, log: int) -> None:
    """gRPC writes to stderr why it turned somebody away before Python heard of it: note that, once per reason."""
    theirs, ours = os.pipe()
    os.dup2(ours, 2)
    os.close(ours)
    threading.Thread(target=sort_lines, args=(theirs, notes, lambda line: ignore_full(log, line)), daemon=True).start()


def sort_lines(descriptor: int, notes: Any, keep: Callable[[str], None]) -> None:
    """Every line of gRPC's that has a meaning becomes a refusal; other lines are kept as they are."""
    with open(descriptor, errors="replace") as lines:
        for line in lines:
            if not re.match(OURS, line):
                keep(line)
                continue
            for sign, meaning in MEANINGS.items():
                if re.search(sign, line):
                    notes.refused("somebody", "", meaning)
                    break
