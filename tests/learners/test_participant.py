"""A learner other than 0, while learner 0 is stopped."""

import socket
import time
from collections import deque

from pronk.learners.participant import Participant
from pronk.learners.peer_channel import PeerChannel
from pronk.processes import messages
from pronk.processes.interrupts import Interrupts


def test_a_learner_0_that_says_nothing_is_named(monkeypatch):
    monkeypatch.setattr("pronk.learners.participant.QUIET_SECONDS", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        channel = PeerChannel(socket.create_connection(listener.getsockname()))
        learner_0 = PeerChannel(listener.accept()[0])
    participant = Participant.__new__(Participant)  # without a group of torch's
    participant._channel, participant._inbox, participant._sent_at = channel, deque(), time.monotonic()
    participant._interrupts = Interrupts()
    said = []

    def say(line):
        said.append(line)
        if len(said) == 2:
            learner_0.send(messages.Decided(True), 5.0)

    participant._say_here = say
    assert participant._decided(lambda: False)
    assert "learner 0 at 127.0.0.1" in said[0]
    assert "it is stopped, hangs, or waits for its actors" in said[0]
    assert participant._interrupts.checks > 1, "the watchdog sees that it waits, and does not hang itself"
    channel.close()
    learner_0.close()
