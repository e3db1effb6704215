"""A channel between two processes: typed messages both ways, one line of JSON each.

It works over any pair of descriptors: a socket pair between parent and child, a TCP socket, the pipes of an SSH client.
Sending never blocks for long: what the other side does not take yet is kept and sent with the next call.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pronk.processes.messages import Message, decode, encode

VARIABLE = "PRONK_CHANNEL"
"""Environment variable of a child: the descriptor of its channel to the process that started it."""
MOST_BYTES = 64 << 20  # unread or unsent; more means that the other side is not Pronk, or is stuck
CHUNK = 1 << 16
CHUNKS = 32  # read at once, so that a sender that never stops cannot keep the reader busy for ever


class ChannelClosed(Exception):  # noqa: N818 - not an error by itself: what it means depends on who closed it
    """The other side has closed the channel or is gone."""


class Channel:
    """One end of a channel. Not thread-safe."""

    def __init__(self, reader: int, writer: int | None = None, decode: Callable[[bytes], Message] = decode) -> None:
        """Take over two descriptors, or one for both directions. `decode` raises ValueError for a line it refuses."""
        self._reader, self._writer, self._decode = reader, reader if writer is None else writer, decode
        for descriptor in (self._reader, self._writer):
            os.set_blocking(descriptor, False)
            os.set_inheritable(descriptor, False)
        self._unread, self._unsent = b"", b""
        self._inbox: list[Message] = []
        self._ended: str | None = None  # why nothing more will come

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._reader

    def send(self, message: Message, seconds: float = 0.0) -> None:
        """Send a message; wait up to `seconds` until the other side's buffer has room for all of it.

        Raises:
            ChannelClosed: the other side is gone.
        """
        self._unsent += encode(message)
        if len(self._unsent) > MOST_BYTES:
            raise ChannelClosed("the other side does not read")
        self.flush(seconds)

    @property
    def is_flushed(self) -> bool:
        """Whether the other side's buffer has taken all that was sent."""
        return not self._unsent

    def flush(self, seconds: float = 0.0) -> None:
        """Send what is left of earlier messages, as far as there is room within `seconds`."""
        deadline = time.monotonic() + seconds
        while self._unsent:
            try:
                self._unsent = self._unsent[os.write(self._writer, self._unsent) :]
            except BlockingIOError:
                if not wait_for(self._writer, select.POLLOUT, deadline):
                    return
            except OSError as error:
                raise ChannelClosed(error.strerror or str(error)) from None

    def receive(self, seconds: float | None = 0.0) -> list[Message]:
        """Return the messages that have arrived, oldest first.

        Args:
            seconds: how long to wait if there is none; None: without limit.

        Raises:
            ChannelClosed: all messages have been returned and no more can come.
        """
        self._fill_inbox(None if seconds is None else time.monotonic() + seconds)
        messages, self._inbox = self._inbox, []
        return messages

    def __iter__(self) -> Iterator[Message]:
        """Wait for message after message, until the other side closes the channel."""
        with contextlib.suppress(ChannelClosed):
            while True:
                self._fill_inbox(None)
                yield self._inbox.pop(0)

    def close(self) -> None:
        """Close this end. The other side receives what was sent, then `ChannelClosed`."""
        for descriptor in {self._reader, self._writer} - {-1}:
            os.close(descriptor)
        self._reader = self._writer = -1
        self._ended = "it was closed here"

    def _fill_inbox(self, deadline: float | None) -> None:
        """Read what has arrived; while that is no complete message, wait until the deadline."""
        while True:
            with contextlib.suppress(ChannelClosed):  # reading reports it, too, after the last message
                self.flush()
            self._read()
            if self._inbox:
                return
            if self._ended is not None:
                raise ChannelClosed(self._ended)
            if not wait_for(self._reader, select.POLLIN, deadline):
                return

    def _read(self) -> None:
        for _ in range(CHUNKS):
            if self._ended is not None:
                break
            try:
                data = os.read(self._reader, CHUNK)
            except BlockingIOError:
                break
            except OSError as error:
                data, self._ended = b"", error.strerror or str(error)
            if not data:
                self._ended = self._ended or "the other side closed it"
            self._unread += data
        *lines, self._unread = self._unread.split(b"\n")
        try:
            self._inbox += map(self._decode, lines)
            if len(self._unread) > MOST_BYTES:
                raise ValueError
        except (ValueError, RecursionError):
            self._ended = "what came is not a message"


def pair() -> tuple[Channel, socket.socket]:
    """Return a channel, and the socket at its other end for a child to inherit."""
    ours, theirs = socket.socketpair()
    return Channel(ours.detach()), theirs


def inherited() -> Channel | None:
    """Return the channel to the process that started this one; None if it gave none. Only the first call finds it."""
    descriptor = os.environ.pop(VARIABLE, None)
    return Channel(int(descriptor)) if descriptor else None


def ready(sources: Sequence[Any], seconds: float) -> list[Any]:
    """Return the channels or sockets that have something to receive; wait up to `seconds` for the first."""
    poll = select.poll()  # not `select`, which knows only the first 1024 descriptors
    by_number = {source.fileno(): source for source in sources}
    for number in by_number:
        poll.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poll.poll(1000 * seconds)]


def wait_for(descriptor: int, event: int, deadline: float | None) -> bool:
    """Wait until the descriptor is ready, or return False at the deadline."""
    poll = select.poll()
    poll.register(descriptor, event)
    milliseconds = None if deadline is None else max(0.0, 1000 * (deadline - time.monotonic()))
    return bool(poll.poll(milliseconds))
