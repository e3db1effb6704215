"""The wire format between an actor and the gateway: each gRPC message is one frame, a short header and raw bytes.

    actor -> learner     HELLO {who}   READY {layout}   PULL version    UNROLL number   ACT   LEAVE {why}
    learner -> actor     WELCOME {configuration, layout, ...}   PARAMETERS version | SAME   CREDIT version
                         ANSWER version   STOP

A client whose HELLO has `reads: true` gets parameters and STOP, and sends only PULL and LEAVE: it has no number and no
credit.

{...} is JSON. CREDIT is the back-pressure: it has a `limit`, and an actor may send the unrolls numbered below it. With
central inference an actor needs no parameters: it sends observations with ACT, one request at a time, and gets ANSWER,
the blocks of `mailboxes.RequestLayouts`. The `version` of CREDIT and ANSWER is what the learner has published by then.
The gateway refuses a client by ending the stream with a gRPC status and the reason. No frame can carry code.
"""

from __future__ import annotations

import json
import struct
from enum import IntEnum
from typing import Any, NamedTuple

PROTOCOL = 2  # increase it when frames change
METHOD = "/pronk.Learner/Play"
TOKEN = "pronk-token"  # key of the token in a call's metadata

HEADER = struct.Struct("<4sBB2xQQQ")
MAGIC = b"PRNK"
MAX_JSON_BYTES = 1 << 16  # of a frame whose body is not a block


class Kind(IntEnum):
    """Kind of a frame; see the module's docstring."""

    HELLO = 1
    READY = 2
    PULL = 3
    UNROLL = 4
    LEAVE = 5
    ACT = 6
    WELCOME = 16
    PARAMETERS = 17
    SAME = 18
    CREDIT = 19
    STOP = 20
    ANSWER = 21


BLOCKS = (Kind.UNROLL, Kind.ACT)  # from actors; their size is that of their layout


class InvalidFrame(Exception):  # noqa: N818 - not an error of this process
    """Not a frame, or not of the expected kind. The sender gets the message."""


class Frame(NamedTuple):
    """A decoded frame. The body is not copied."""

    kind: Kind
    number: int
    limit: int
    encoding: int
    nbytes: int
    """Size of the body when decompressed."""
    body: memoryview


def pack(kind: Kind, body: Any = b"", number: int = 0, limit: int = 0, encoding: int = 0, nbytes: int = -1) -> bytes:
    """Return a message."""
    header = HEADER.pack(MAGIC, kind, encoding, number, limit, len(body) if nbytes < 0 else nbytes)
    return b"".join([header, body])


def pack_json(kind: Kind, content: dict[str, Any], limit: int = 0) -> bytes:
    """Return a message whose body is JSON."""
    return pack(kind, json.dumps(content).encode(), limit=limit)


def unpack(message: bytes) -> Frame:
    """Return the frame of a message. Raises `InvalidFrame`."""
    if len(message) < HEADER.size:
        raise InvalidFrame(f"a message of {len(message)} bytes is too short for a frame")
    magic, kind, encoding, number, limit, nbytes = HEADER.unpack_from(message)
    if magic != MAGIC:
        raise InvalidFrame("a message that does not start with a frame header")
    try:
        kind = Kind(kind)
    except ValueError:
        raise InvalidFrame(f"unknown kind of frame: {kind}") from None
    return Frame(kind, number, limit, encoding, nbytes, memoryview(message)[HEADER.size :])


def unpack_json(frame: Frame, *wanted: Kind) -> dict[str, Any]:
    """Return the JSON object of a frame, which must be of one of these kinds. Raises `InvalidFrame`."""
    if frame.kind not in wanted:
        raise InvalidFrame(f"{frame.kind.name} came where {' or '.join(kind.name for kind in wanted)} was expected")
    try:
        content = json.loads(bytes(frame.body))
    except (ValueError, RecursionError):
        raise InvalidFrame(f"{frame.kind.name} does not hold JSON") from None
    if not isinstance(content, dict):
        raise InvalidFrame(f"{frame.kind.name} does not hold a JSON object")
    return content


def stream_options(keepalive_seconds: float) -> list[tuple[str, int]]:
    """Return gRPC's settings of both sides. Each notices within twice this time that the other is gone."""
    return [
        ("grpc.keepalive_time_ms", int(1000 * keepalive_seconds)),
        ("grpc.keepalive_timeout_ms", int(1000 * keepalive_seconds)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.max_frame_size", 1 << 20),
        ("grpc.max_send_message_length", -1),
    ]
