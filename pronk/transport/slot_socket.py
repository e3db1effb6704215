"""The socket between the learner and a process that fills slots. It carries only slot numbers."""

from __future__ import annotations

import contextlib
import socket
import struct

from pronk.transport.base import Closed

RECORD = struct.Struct("<II")  # slot number, number of the actor that filled it
FINISHED = 0xFFFFFFFF  # instead of a slot number: the run has ended, so actors need not wait for a restart
MOST_BYTES = 1 << 16  # to receive at once


class SlotSocket:
    """One end of the socket. Only an actor's end blocks: neither the learner nor the gateway may wait for the other.

    A socket has room for a few hundred records only (278 on Linux), because the kernel counts each message as a whole
    buffer. What it has no room for, as when the other side is busy or stopped, is kept for the next `flush`.
    """

    def __init__(self, connection: socket.socket, blocking: bool = False) -> None:
        connection.setblocking(blocking)
        self._socket = connection
        self._unsent, self._partial = bytearray(), b""

    def fileno(self) -> int:
        """Return the descriptor, for selectors and event loops."""
        return self._socket.fileno()

    def put(self, slot: int, actor: int = 0) -> None:
        """Add a record to what the next `flush` sends."""
        self._unsent += RECORD.pack(slot, actor)

    def flush(self) -> bool:
        """Send what there is room for; return whether that was everything. Raises `Closed`."""
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            return False
        except OSError as error:
            raise Closed from error
        return True

    def finish(self, seconds: float) -> None:
        """Send FINISHED after all else, if there is room within so many seconds."""
        self.put(FINISHED)
        self._socket.settimeout(seconds)
        with contextlib.suppress(OSError):
            self._socket.sendall(self._unsent)

    def receive(self) -> list[tuple[int, int]]:
        """Return records that have come; there may be none yet. Raises `Closed` when the other side is gone."""
        try:
            received = self._socket.recv(MOST_BYTES)
        except BlockingIOError:
            return []
        except OSError as error:
            raise Closed from error
        if not received:
            raise Closed
        data = self._partial + received  # a stream may split a record
        end = len(data) - len(data) % RECORD.size
        self._partial = data[end:]
        return list(RECORD.iter_unpack(data[:end]))

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
