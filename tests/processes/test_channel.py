"""Messages over a channel: whole, in order, whatever the pieces; and what is not a message."""

import os
import threading

import pytest

from pronk.processes.channel import Channel, ChannelClosed, pair, ready
from pronk.processes.messages import Alive, Evaluate, Failed, Message, decode, encode


@pytest.fixture
def ends():
    ours, theirs = pair()
    other = Channel(theirs.detach())
    yield ours, other
    ours.close()
    other.close()


def test_every_kind_of_message_survives_the_journey():
    for message in (Alive(), Failed("because\nof \udc80 this", True), Evaluate("a", "b")):
        assert decode(encode(message)) == message
    assert len({kind.__name__ for kind in Message.__subclasses__()}) == len(Message.__subclasses__())


@pytest.mark.parametrize(
    "line", [b"", b"null", b"[]", b"{}", b'{"kind": "Nobody"}', b'{"kind": "Failed"}', b'{"kind": "Alive", "x": 1}']
)
def test_what_is_not_a_message_closes_the_channel(line, ends):
    ours, other = ends
    os.write(other.fileno(), line + b"\n")
    with pytest.raises(ChannelClosed, match="not a message"):
        ours.receive()
    with pytest.raises(ChannelClosed, match="not a message"):
        ours.receive()


def test_pieces_are_put_together(ends):
    ours, other = ends
    data = encode(Failed("a")) + encode(Failed("b"))
    for place in range(len(data) - 1):
        os.write(other.fileno(), data[place : place + 1])
        if data[place] == ord("\n"):
            assert ours.receive() == [Failed("a")]
        else:
            assert ours.receive() == []
    os.write(other.fileno(), data[-1:])
    assert ours.receive() == [Failed("b")]


def test_nobody_waits_for_a_reader_and_nothing_is_lost(ends):
    ours, other = ends
    sent = [Failed(f"{number} " + 50_000 * "x") for number in range(50)]
    for message in sent:
        ours.send(message)
    received = []
    while len(received) < len(sent):
        received += other.receive()
        ours.flush()
    assert received == sent


def test_waiting_for_a_message(ends):
    ours, other = ends
    assert ours.receive(0.01) == []
    threading.Timer(0.1, lambda: other.send(Alive())).start()
    assert ours.receive(30.0) == [Alive()]
    other.send(Alive())
    assert ready([ours, other], 30.0) == [ours]


def test_last_messages_are_received_before_the_end(ends):
    ours, other = ends
    other.send(Failed("the end"))
    other.close()
    assert list(ours) == [Failed("the end")]
    with pytest.raises(ChannelClosed):
        ours.receive()
    with pytest.raises(ChannelClosed):
        ours.send(Alive())


def test_two_pipes_are_a_channel_too():
    (their_read, our_write), (our_read, their_write) = os.pipe(), os.pipe()
    ours, theirs = Channel(our_read, our_write), Channel(their_read, their_write)
    ours.send(Alive())
    theirs.send(Failed("x"))
    assert (ours.receive(1.0), theirs.receive(1.0)) == ([Failed("x")], [Alive()])
    theirs.close()
    with pytest.raises(ChannelClosed):
        ours.receive()
    ours.close()
