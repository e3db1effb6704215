"""Fewer bytes on the wire: unrolls and observations may be compressed, parameters may have 16 bits per weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pronk.types import UserError

COMPRESSIONS = ("none", "lz4", "zstd")  # a frame holds the index
DTYPES = ("float32", "bfloat16", "float16")


class InvalidBody(Exception):  # noqa: N818 - not an error of this process
    """The bytes do not decode to what the header announced."""


def compressor(name: str) -> Callable[[Any], bytes]:
    """Return a function that compresses bytes. Raises UserError if its package is not installed."""
    if name == "lz4":
        block = library("lz4.block", "lz4")
        return lambda data: block.compress(data, store_size=False)
    if name == "zstd":
        return library("zstandard", "zstd").ZstdCompressor(level=1).compress
    return bytes


def decompress(encoding: int, body: memoryview, nbytes: int) -> Any:
    """Return the `nbytes` bytes that were compressed. Never allocates more, whatever the body claims."""
    name = COMPRESSIONS[encoding] if encoding < len(COMPRESSIONS) else "?"
    try:
        if name == "lz4":
            data = library("lz4.block", "lz4").decompress(body, uncompressed_size=nbytes)
        elif name == "zstd":
            zstandard = library("zstandard", "zstd")
            if zstandard.frame_content_size(body) != nbytes:
                raise InvalidBody("a compressed block of another size")
            data = zstandard.ZstdDecompressor().decompress(body)
        elif name == "none":
            data = body
        else:
            raise InvalidBody(f"unknown compression {encoding}")
    except (InvalidBody, UserError):
        raise
    except Exception:  # each library raises its own kinds
        raise InvalidBody(f"a block that {name} cannot decompress") from None
    if len(data) != nbytes:
        raise InvalidBody(f"a block of {len(data):,} bytes where {nbytes:,} were expected")
    return data


def shrink(block: np.ndarray, dtype: str) -> bytes:
    """Return a block of float32 weights as bytes of the given type."""
    if dtype == "float16":
        most = np.finfo(np.float16).max
        return np.clip(block.view(np.float32), -most, most).astype(np.float16).tobytes()
    if dtype == "bfloat16":
        bits = block.view(np.uint32)
        rounded = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))  # to nearest, ties to even
        return (rounded >> np.uint32(16)).astype(np.uint16).tobytes()
    return block.tobytes()


def grow(body: memoryview, dtype: str, block: np.ndarray) -> None:
    """Write bytes from `shrink` into a block of float32 weights."""
    if len(body) != block.nbytes // (1 if dtype == "float32" else 2):
        raise InvalidBody(f"parameters of {len(body):,} bytes for a network of {block.nbytes:,}")
    if dtype == "float16":
        block.view(np.float32)[:] = np.frombuffer(body, np.float16)
    elif dtype == "bfloat16":
        block.view(np.uint32)[:] = np.frombuffer(body, np.uint16).astype(np.uint32) << np.uint32(16)
    else:
        block[:] = np.frombuffer(body, np.uint8)


def library(module: str, compression: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError:
        raise UserError(
            f"transport.compression={compression} needs a package that is not installed: "
            "pip install 'pronk[compression]' on the learner's and on every actor's machine"
        ) from None
