"""Frames and their bodies: what is packed comes out, and nothing else is taken for a frame."""

import numpy as np
import pytest

from pronk.transport.codecs import COMPRESSIONS, DTYPES, InvalidBody, compressor, decompress, grow, shrink
from pronk.transport.frames import HEADER, InvalidFrame, Kind, pack, pack_json, unpack, unpack_json


def test_a_frame_comes_out_as_it_went_in():
    frame = unpack(pack(Kind.UNROLL, b"abc", number=7, limit=9, encoding=2, nbytes=1000))
    assert frame[:5] == (Kind.UNROLL, 7, 9, 2, 1000)
    assert bytes(frame.body) == b"abc"


@pytest.mark.parametrize(
    "message",
    [b"", b"PRNK", bytes(100), b"X" * 100, pack(Kind.PULL)[:-1], b"PRNK\xff" + bytes(HEADER.size)],
)
def test_what_is_no_frame_is_refused(message):
    with pytest.raises(InvalidFrame):
        unpack(message)


def test_random_bytes_never_raise_anything_else():
    random, refused = np.random.default_rng(1), 0
    for _ in range(2000):
        message = random.bytes(int(random.integers(200)))
        message = message if random.random() < 0.5 else b"PRNK" + message
        try:
            unpack_json(unpack(message), Kind.HELLO, Kind.READY)
        except InvalidFrame:
            refused += 1
    assert refused == 2000


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"null", b"\xff\xfe", b"[" * 10_000])
def test_talk_holds_a_json_object(body):
    with pytest.raises(InvalidFrame):
        unpack_json(unpack(pack(Kind.HELLO, body)), Kind.HELLO)


def test_talk_is_of_the_kind_that_was_due():
    message = pack_json(Kind.HELLO, {"a": 1})
    assert unpack_json(unpack(message), Kind.HELLO) == {"a": 1}
    with pytest.raises(InvalidFrame, match="HELLO came where READY was expected"):
        unpack_json(unpack(message), Kind.READY)


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_compression_gives_back_what_it_got(name):
    data = b"frame after frame " * 1000
    body = compressor(name)(memoryview(bytearray(data)))
    assert bytes(decompress(COMPRESSIONS.index(name), memoryview(body), len(data))) == data
    assert name == "none" or len(body) < len(data) / 10


@pytest.mark.parametrize("name", ["lz4", "zstd"])
def test_a_body_that_would_grow_beyond_its_size_is_refused(name):
    bomb = compressor(name)(bytes(50_000_000))
    with pytest.raises(InvalidBody):
        decompress(COMPRESSIONS.index(name), memoryview(bomb), 1000)


@pytest.mark.parametrize("encoding", range(5))
def test_bodies_of_random_bytes_are_refused(encoding):
    for seed in range(50):
        with pytest.raises(InvalidBody):
            decompress(encoding, memoryview(np.random.default_rng(seed).bytes(100)), 1000)


def test_a_library_that_is_missing_is_named(monkeypatch):
    import sys

    from pronk.types import UserError

    monkeypatch.setitem(sys.modules, "lz4.block", None)
    with pytest.raises(UserError, match=r"transport.compression=lz4.*pronk\[compression\]"):
        compressor("lz4")


@pytest.mark.parametrize(("dtype", "error"), [("float32", 0.0), ("bfloat16", 2**-8), ("float16", 2**-11)])
def test_weights_travel_with_the_precision_of_their_dtype(dtype, error):
    weights = np.random.default_rng(1).normal(size=5000).astype(np.float32)
    block, out = weights.view(np.uint8), np.zeros(weights.nbytes, np.uint8)
    body = shrink(block, dtype)
    assert len(body) == weights.nbytes // (1 if dtype == "float32" else 2)
    grow(memoryview(body), dtype, out)
    assert np.all(np.abs(out.view(np.float32) - weights) <= error * np.abs(weights) + (1e-7 if error else 0))


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_weights_stay_finite(dtype):
    weights = np.array([0.0, -0.0, 1e5, -1e30, 3e38, 1e-40], np.float32)
    out = np.zeros(weights.nbytes, np.uint8)
    grow(memoryview(shrink(weights.view(np.uint8), dtype)), dtype, out)
    assert np.isfinite(out.view(np.float32)).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_parameters_of_another_network_are_refused(dtype):
    with pytest.raises(InvalidBody):
        grow(memoryview(bytes(12)), dtype, np.zeros(16, np.uint8))
