"""Frames whose body is the block of a layout, from an actor: an unroll, or observations to act on."""

from __future__ import annotations

from typing import Any

from pronk.layout import Layout
from pronk.transport.codecs import COMPRESSIONS, compressor
from pronk.transport.frames import HEADER, MAGIC, Kind, pack


class BlockFrame:
    """A frame that is filled in place, sent, and filled again."""

    def __init__(self, kind: Kind, layout: Layout, compression: str) -> None:
        self._kind, self._nbytes = kind, layout.nbytes
        self._message = bytearray(HEADER.size + layout.nbytes)
        self._body = memoryview(self._message)[HEADER.size :]
        self._encoding, self._compress = COMPRESSIONS.index(compression), compressor(compression)
        self.values: Any = layout.view(self._body)

    def packed(self, number: int = 0) -> bytes:
        """Return the message, compressed if that makes it smaller."""
        if self._encoding:
            body = self._compress(self._body)
            if len(body) < self._nbytes:
                return pack(self._kind, body, number, encoding=self._encoding, nbytes=self._nbytes)
        HEADER.pack_into(self._message, 0, MAGIC, self._kind, 0, number, 0, self._nbytes)
        return bytes(self._message)
