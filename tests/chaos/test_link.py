"""The link between namespaces does what it says, and TCP hides it."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from link import ADDRESSES, FAULTS, LATE_SECONDS, Fate, Link, NoLink

BYTES = 300_000
SERVER = f"""
import socket, sys
server = socket.create_server(("{ADDRESSES[0]}", 0))
print(server.getsockname()[1], flush=True)
connection, _ = server.accept()
while data := connection.recv(1 << 16):
    sys.stdout.buffer.write(data)
"""
CLIENT = f"""
import random, socket, sys
with socket.create_connection(("{ADDRESSES[0]}", int(sys.argv[1])), 60) as connection:
    connection.sendall(random.Random(1).randbytes({BYTES}))
"""


@pytest.mark.timeout(180)
def test_bytes_arrive_whole_through_every_fault() -> None:
    try:
        link = Link(seed=1)
    except NoLink as reason:
        pytest.skip(str(reason))
    with link:
        link.set(loss=0.02, reorder=0.1, duplicate=0.1, corrupt=0.02)
        server = subprocess.Popen([*link.within(0), sys.executable, "-c", SERVER], stdout=subprocess.PIPE)
        try:
            assert server.stdout
            port = server.stdout.readline().decode().strip()
            subprocess.run([*link.within(1), sys.executable, "-c", CLIENT, port], check=True, timeout=120)
            arrived, _ = server.communicate(timeout=60)
        finally:
            server.kill()
        counts = link.set()
    assert arrived == random.Random(1).randbytes(BYTES)
    assert all(counts[fault] for fault in ("loss", "reorder", "duplicate", "corrupt")), counts


def test_what_happens_to_a_packet() -> None:
    packet = bytes(100)

    def fate(**probabilities: float) -> list[tuple[float, bytes]]:
        one = Fate(seed=1)
        one.probabilities = {name.replace("_", " "): value for name, value in probabilities.items()}
        return one.of(packet, source=1)

    assert [one for _, one in fate()] == [packet]
    assert fate(loss=1.0) == fate(loss_from_1=1.0) == []
    assert fate(loss_from_0=1.0) == fate()
    assert fate(reorder=1.0)[0][0] >= LATE_SECONDS[0]
    assert [one for _, one in fate(duplicate=1.0)] == [packet, packet]
    assert sum(byte.bit_count() for byte in fate(corrupt=1.0)[0][1]) == 1
    assert set(Fate(seed=1).counts) == {"packets", *FAULTS}
