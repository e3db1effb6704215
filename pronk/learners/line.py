"""A line between learner 0 and another learner: small JSON messages both ways, and the news that the other is gone.

A killed process closes its socket at once; a machine that lost its power or its network is found out by the kernel's
own probes. No thread and no heartbeat of ours is needed for either.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import struct
import sys
from typing import Any

Message = dict[str, Any]

LENGTH = struct.Struct("!I")
MOST_BYTES = 64 * 2**20  # a longer message is no message
PROBE_AFTER, PROBE_EVERY, PROBES = 5, 5, 3  # seconds of silence, seconds between, how many: gone after 20 s
SEND_SECONDS = 20.0


class Gone(Exception):  # noqa: N818 - not an error by itself: what it means depends on who is gone
    """The other side has closed the line, or has not been heard for too long."""


class Line:
    """One end. `receive` never waits."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket, self._read = connection, bytearray()
        connection.settimeout(SEND_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if sys.platform == "linux":
            for option, value in (
                (socket.TCP_KEEPIDLE, PROBE_AFTER),
                (socket.TCP_KEEPINTVL, PROBE_EVERY),
                (socket.TCP_KEEPCNT, PROBES),
                (socket.TCP_USER_TIMEOUT, int(1000 * SEND_SECONDS)),
            ):
                connection.setsockopt(socket.IPPROTO_TCP, option, value)

    def fileno(self) -> int:
        """For `select`."""
        return self._socket.fileno()

    @property
    def own_host(self) -> str:
        """This side's address, as the other side sees it."""
        return self._socket.getsockname()[0]

    @property
    def other_host(self) -> str:
        """The other side's."""
        return self._socket.getpeername()[0]

    def send(self, message: Message) -> None:
        """Raises `Gone` if nobody can receive it."""
        data = json.dumps(message).encode()
        try:
            self._socket.sendall(LENGTH.pack(len(data)) + data)
        except OSError as error:
            raise Gone(str(error)) from None

    def receive(self) -> list[Message]:
        """What has come since the last time. Raises `Gone` when that was all there will ever be."""
        gone: Gone | None = None
        while gone is None and ready([self], 0.0):
            try:
                data = self._socket.recv(65536)
            except OSError as error:
                data, gone = b"", Gone(str(error))
            self._read += data
            if not data:
                gone = gone or Gone("the connection ended")
        messages = list(self._whole_messages())
        if gone is not None and not messages:
            raise gone
        return messages

    def _whole_messages(self) -> Any:
        while len(self._read) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._read)
            if length > MOST_BYTES:
                raise Gone("what came was no message")
            end = LENGTH.size + length
            if len(self._read) < end:
                return
            data = bytes(self._read[LENGTH.size : end])
            del self._read[:end]
            try:
                message = json.loads(data)
            except ValueError:
                message = None
            if not isinstance(message, dict):
                raise Gone("what came was no message")
            yield message

    def close(self) -> None:
        """The other side gets what was sent, then `Gone`."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def ready(lines: list[Any], seconds: float) -> list[Any]:
    """Those with something to receive; waits for the first, but no longer than this."""
    poll = select.poll()  # not `select`, which knows only the first 1024 descriptors
    by_number = {line.fileno(): line for line in lines}
    for number in by_number:
        poll.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poll.poll(1000 * seconds)]
