"""Channels between learners: messages over TCP, and the news that the other side is gone."""

from __future__ import annotations

import socket
import time

import pytest

from pronk.learners.peer_channel import PeerChannel
from pronk.processes.channel import ChannelClosed
from pronk.processes.messages import Contributed, Leaving, Notice

SECONDS = 30.0


@pytest.fixture
def ends():
    listener = socket.create_server(("127.0.0.1", 0))
    theirs = PeerChannel(socket.create_connection(listener.getsockname()))
    ours = PeerChannel(listener.accept()[0])
    yield ours, theirs
    ours.close()
    theirs.close()
    listener.close()


def test_messages_arrive_whole_and_in_order(ends):
    ours, theirs = ends
    messages = [Contributed([number, float("inf"), "x" * 50_000]) for number in range(20)]
    for message in messages:
        ours.send(message)
    received = []
    while len(received) < 20:
        received += theirs.receive(0.01)
        ours.flush()
    assert received == messages
    assert (ours.own_host, ours.other_host) == ("127.0.0.1", "127.0.0.1")


def test_what_was_sent_before_the_end_still_arrives(ends):
    ours, theirs = ends
    theirs.send(Leaving("finished"))
    theirs.close()
    assert ours.receive(SECONDS) == [Leaving("finished")]
    with pytest.raises(ChannelClosed):
        ours.receive(SECONDS)


def test_sending_to_nobody_is_noticed(ends):
    ours, theirs = ends
    theirs.close()
    ours.send(Notice("lost, but nobody knows yet"))
    time.sleep(0.05)
    with pytest.raises(ChannelClosed):
        ours.send(Notice("refused"))
