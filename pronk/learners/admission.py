"""Who may join learner 0: connections that know the token, one of each rank."""

from __future__ import annotations

import hmac
import secrets
import socket
from collections.abc import Container, Sequence

from pronk import __version__
from pronk.learners.peer_channel import SEND_SECONDS, PeerChannel, listen
from pronk.processes.channel import ChannelClosed
from pronk.processes.messages import Hello, Leaving, Message, Welcome

MOST_STRANGERS = 64  # connections that have not said who they are; the oldest is closed


class Admission:
    """Accepts connections, and admits those that have said who they are."""

    def __init__(self, host: str, count: int) -> None:
        """Listen at a free port of `host` for learners 1 to `count` - 1."""
        self.token = secrets.token_hex(16)
        self.welcome: Message = Welcome("", "", "mean")
        """What a learner is sent when it joins."""
        self._count, self._listener = count, listen(host, 0)
        self._strangers: list[PeerChannel] = []

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    @property
    def sources(self) -> Sequence[socket.socket | PeerChannel]:
        """What to wait for."""
        return [self._listener, *self._strangers]

    def handle(self, source: socket.socket | PeerChannel, joined: Container[int]) -> tuple[int, PeerChannel] | None:
        """Handle what has come from one of the `sources`. Returns a learner that may join, if it is one."""
        if not isinstance(source, PeerChannel):
            self._strangers.append(PeerChannel(source.accept()[0]))
            if len(self._strangers) > MOST_STRANGERS:
                self._strangers.pop(0).close()
            return None
        self._strangers.remove(source)
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
        for channel in self._strangers:
            channel.close()
        self._listener.close()

    def _admit(self, channel: PeerChannel, joined: Container[int]) -> int | None:
        """Return the rank of a learner that knows the token and is missing; None, and tell it why, for others."""
        hello = next(iter(channel.receive()), None)
        if not isinstance(hello, Hello) or not hmac.compare_digest(str(hello.token).encode(), self.token.encode()):
            return None
        problem = None
        if hello.version != __version__:
            problem = f"learner 0 is Pronk {__version__}, this is {hello.version}"
        elif hello.rank not in range(1, self._count) or hello.rank in joined:
            problem = f"learner 0 expects learners 1 to {self._count - 1}, each once, not learner {hello.rank}"
        channel.send(Leaving("failed", problem) if problem else self.welcome, SEND_SECONDS)
        return None if problem else hello.rank
