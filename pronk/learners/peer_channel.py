"""The channel between learner 0 and another learner, over TCP.

A killed process closes its socket at once; a machine that lost its power or its network is found by the kernel's
keep-alive probes. So it takes neither a thread nor a heartbeat to notice either of them.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import sys

from pronk.processes.channel import Channel
from pronk.types import UserError

PROBE_AFTER, PROBE_EVERY, PROBES = 5, 5, 3  # seconds of silence, seconds between, how many: gone after 20 s
SEND_SECONDS = 20.0


class PeerChannel(Channel):
    """One end of a TCP connection between learners."""

    def __init__(self, connection: socket.socket) -> None:
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
        self.own_host, self.other_host = connection.getsockname()[0], connection.getpeername()[0]
        super().__init__(connection.detach())

    def close(self) -> None:
        """Close the connection. The other side receives what was sent, then `ChannelClosed`."""
        if self.fileno() >= 0:
            connection = socket.socket(fileno=self.fileno())
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.detach()  # `Channel` closes it
        super().close()


def listen(host: str, port: int) -> socket.socket:
    """Listen at an address of this machine, or at all of them if others know the machine by another address."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        try:
            return socket.create_server((host, port), family=family)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            return socket.create_server(("", port))
    except OSError as error:
        raise UserError(f"learners.address: learner 0 cannot listen at {host}:{port}: {error.strerror}") from None
