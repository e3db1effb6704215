"""Lines between learners: whole messages, and the news that the other side is gone."""

from __future__ import annotations

import socket
import time

import pytest

from pronk.learners.line import LENGTH, Gone, Line, ready


@pytest.fixture
def ends():
    listener = socket.create_server(("127.0.0.1", 0))
    theirs = socket.create_connection(listener.getsockname())
    ours, _ = listener.accept()
    line = Line(ours)
    yield line, theirs
    line.close()
    theirs.close()
    listener.close()


def arrived(line, seconds=5.0):
    assert ready([line], seconds)
    return line.receive()


def test_messages_arrive_whole_and_in_order_however_they_are_cut(ends):
    line, theirs = ends
    other = Line(theirs)
    messages = [{"number": number, "text": "x" * 5000} for number in range(20)]
    for message in messages:
        line.send(message)
    received = []
    while len(received) < 20:
        received += arrived(other)
    assert received == messages
    data = b'{"a": [1, NaN]}'
    for byte in LENGTH.pack(len(data)) + data:
        assert line.receive() == []
        theirs.sendall(bytes([byte]))
        time.sleep(0.001)
    assert str(arrived(line)) == "[{'a': [1, nan]}]"


def test_what_was_sent_before_the_end_still_arrives(ends):
    line, theirs = ends
    other = Line(theirs)
    other.send({"last": "words"})
    other.close()
    assert arrived(line) == [{"last": "words"}]
    with pytest.raises(Gone):
        arrived(line)


@pytest.mark.parametrize("garbage", [b"\xff" * 64, LENGTH.pack(3) + b"abc", LENGTH.pack(2) + b"[]"])
def test_what_is_no_message_ends_the_line(ends, garbage):
    line, theirs = ends
    theirs.sendall(garbage)
    with pytest.raises(Gone, match="no message"):
        arrived(line)


def test_sending_to_nobody_is_noticed(ends):
    line, theirs = ends
    theirs.close()
    line.send({"first": "lost, but nobody knows yet"})
    time.sleep(0.05)
    with pytest.raises(Gone):
        line.send({"second": "refused"})
