"""Decides who may join learner 0: connections that know the token, one of each rank."""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
from collections.abc import Container, Sequence

from pronk import __version__
from pronk.learners.peer_channel import SEND_SECONDS, PeerChannel, listen
from pronk.processes.channel import ChannelClosed
from pronk.processes.messages import Hello, Leaving, Message, Welcome

MOST_UNKNOWN = 64  # connections that have not sent Hello yet; if there are more, the oldest is closed


class Admission:
    """Accepts connections, and admits those whose Hello is valid."""

    def __init__(self, host: str, count: int) -> None:
        """Listen at a free port of `host` for learners 1 to `count` - 1."""
        self.token = secrets.token_hex(16)
        self.welcome: Message = Welcome("", "", "mean")
        """What a learner is sent when it joins."""
        self._count, self._listener = count, listen(host, 0)
        self._unknown: list[PeerChannel] = []

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    @property
    def sources(self) -> Sequence[socket.socket | PeerChannel]:
        """The listener and the connections to wait for."""
        return [self._listener, *self._unknown]

    def handle(self, source: socket.socket | PeerChannel, joined: Container[int]) -> tuple[int, PeerChannel] | None:
        """Handle input from one of the `sources`. Returns rank and channel if it is a learner that may join."""
        if not isinstance(source, PeerChannel):
            with contextlib.suppress(OSError):  # it is gone already, or there are too many open files
                self._unknown.append(accepted(source))
            if len(self._unknown) > MOST_UNKNOWN:
                self._unknown.pop(0).close()
            return None
        self._unknown.remove(source)
        try:
            rank = self._admit(source, joined)
        except ChannelClosed:
            rank = None
        if rank is None:
            source.close()
            return None
        return rank, source

    def close(self) -> None:
        """Stop listening."""
        for channel in self._unknown:
            channel.close()
        self._listener.close()

    def _admit(self, channel: PeerChannel, joined: Container[int]) -> int | None:
        """Return the rank of a learner that may join, else None. One that knows the token gets the reason."""
        hello = next(iter(channel.receive()), None)
        if not isinstance(hello, Hello) or not hmac.compare_digest(str(hello.token).encode(), self.token.encode()):
            return None
        problem = None
        if hello.version != __version__:
            problem = f"learner 0 is Pronk {__version__}, this is {hello.version}"
        elif hello.rank not in range(1, self._count):
            problem = f"learners.rank={hello.rank}: learner 0 expects learners 1 to {self._count - 1}"
        elif hello.rank in joined:
            problem = (
                f"learners.rank={hello.rank}: a learner of this rank is connected; if it has just been lost, try again "
                "in half a minute"
            )
        channel.send(Leaving("failed", problem) if problem else self.welcome, SEND_SECONDS)
        return None if problem else hello.rank


def accepted(listener: socket.socket) -> PeerChannel:
    """Accept a connection. Raises OSError if its other end is gone already."""
    connection = listener.accept()[0]
    try:
        return PeerChannel(connection)
    except OSError:
        connection.close()
        raise
