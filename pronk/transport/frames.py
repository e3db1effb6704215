"""What travels between an actor and the gateway: one message is one frame, a short header and raw bytes.

    actor -> learner     HELLO {who}   READY {layout}   PULL version    UNROLL number   LEAVE {why}
    learner -> actor     WELCOME {configuration, layout, ...}   PARAMETERS version | SAME   CREDIT   STOP

{...} is JSON. `limit` is the back-pressure: an actor may send the unrolls numbered below it. A refusal is the stream's
end, with a status and its reason. Nothing here can carry code.
"""

from __future__ import annotations

import json
import struct
from enum import IntEnum
from typing import Any, NamedTuple

PROTOCOL = 1  # raise it when frames change
METHOD = "/pronk.Learner/Play"
TOKEN = "pronk-token"  # the name of the token in a call's metadata

HEADER = struct.Struct("<4sBB2xQQQ")
MAGIC = b"PRNK"
LARGEST_TALK = 1 << 16  # bytes of a frame that is not an unroll


class Kind(IntEnum):
    """What a frame is."""

    HELLO = 1
    READY = 2
    PULL = 3
    UNROLL = 4
    LEAVE = 5
    WELCOME = 16
    PARAMETERS = 17
    SAME = 18
    CREDIT = 19
    STOP = 20


class BadFrame(Exception):  # noqa: N818 - what was found
    """Not a frame, or not of the kind that was due. The message is told to whoever sent it."""


class Frame(NamedTuple):
    """A message, taken apart without copying."""

    kind: Kind
    number: int
    limit: int
    encoding: int
    nbytes: int
    """Of the body when decoded."""
    body: memoryview


def pack(kind: Kind, body: Any = b"", number: int = 0, limit: int = 0, encoding: int = 0, nbytes: int = -1) -> bytes:
    """A message."""
    header = HEADER.pack(MAGIC, kind, encoding, number, limit, len(body) if nbytes < 0 else nbytes)
    return b"".join([header, body])


def pack_talk(kind: Kind, content: dict[str, Any], limit: int = 0) -> bytes:
    """A message whose body is JSON."""
    return pack(kind, json.dumps(content).encode(), limit=limit)


def unpack(message: bytes) -> Frame:
    """The frame in a message."""
    if len(message) < HEADER.size:
        raise BadFrame(f"a message of {len(message)} bytes is no frame")
    magic, kind, encoding, number, limit, nbytes = HEADER.unpack_from(message)
    if magic != MAGIC:
        raise BadFrame("a message that does not begin like a frame")
    try:
        kind = Kind(kind)
    except ValueError:
        raise BadFrame(f"no frame is of kind {kind}") from None
    return Frame(kind, number, limit, encoding, nbytes, memoryview(message)[HEADER.size :])


def talk(frame: Frame, *wanted: Kind) -> dict[str, Any]:
    """The JSON object in a frame of one of these kinds."""
    if frame.kind not in wanted:
        raise BadFrame(f"{frame.kind.name} came where {' or '.join(kind.name for kind in wanted)} was due")
    try:
        content = json.loads(bytes(frame.body))
    except (ValueError, RecursionError):
        raise BadFrame(f"{frame.kind.name} does not hold JSON") from None
    if not isinstance(content, dict):
        raise BadFrame(f"{frame.kind.name} does not hold a JSON object")
    return content


def stream_options(keepalive_seconds: float) -> list[tuple[str, int]]:
    """gRPC's settings on both sides. Each notices within twice the time that the other is gone."""
    return [
        ("grpc.keepalive_time_ms", int(1000 * keepalive_seconds)),
        ("grpc.keepalive_timeout_ms", int(1000 * keepalive_seconds)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.max_frame_size", 1 << 20),
        ("grpc.max_send_message_length", -1),
    ]
