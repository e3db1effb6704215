"""Records between the learner and a gateway: whole, in order, and without waiting for the other side."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from pronk.transport import Closed
from pronk.transport.slot_socket import FINISHED, RECORD, SlotSocket

MANY = [(slot, 7) for slot in range(5000)]  # more than a socket has room for


@pytest.fixture
def ends() -> Iterator[tuple[SlotSocket, socket.socket]]:
    """One end, and the bare socket of the other side."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(10.0)
    end = SlotSocket(ours)
    yield end, theirs
    end.close()
    theirs.close()


def read(connection: socket.socket, count: int) -> list[tuple[int, int]]:
    data = b""
    while len(data) < count * RECORD.size:
        data += connection.recv(100)
    return list(RECORD.iter_unpack(data))


def test_what_there_is_no_room_for_is_sent_later_in_its_order(ends: tuple[SlotSocket, socket.socket]) -> None:
    ours, theirs = ends
    sent_at_once = []
    for record in MANY:
        ours.put(*record)
        sent_at_once.append(ours.flush())
    assert sent_at_once[0]
    assert not sent_at_once[-1]
    count = sent_at_once.index(False)
    received = read(theirs, count)
    assert ours.flush()
    assert received + read(theirs, len(MANY) - count) == MANY


def test_a_record_that_comes_in_two_parts_is_one(ends: tuple[SlotSocket, socket.socket]) -> None:
    ours, theirs = ends
    assert ours.receive() == []
    data = b"".join(RECORD.pack(*record) for record in MANY[:3])
    received = []
    for part in (data[:3], data[3:13], data[13:]):
        theirs.sendall(part)
        received.append(ours.receive())
    assert received == [[], MANY[:1], MANY[1:3]]


def test_the_end_of_the_run_comes_last_or_not_at_all(ends: tuple[SlotSocket, socket.socket]) -> None:
    ours, theirs = ends
    ours.put(3)
    ours.finish(0.0)
    assert read(theirs, 2) == [(3, 0), (FINISHED, 0)]
    ours.put(4)
    while ours.flush():
        ours.put(4)
    ours.finish(0.01)


def test_it_is_closed_when_the_other_side_is_gone(ends: tuple[SlotSocket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.sendall(RECORD.pack(5, 1))
    theirs.close()
    assert ours.receive() == [(5, 1)]
    with pytest.raises(Closed):
        ours.receive()
    ours.put(6)
    with pytest.raises(Closed):
        ours.flush()
    ours.finish(0.01)
