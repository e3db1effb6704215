"""How a `pronk` command reports to the process that started it, if that one gave it a channel (`pronk launch`, Ray)."""

from __future__ import annotations

import contextlib

from pronk.processes.channel import Channel, ChannelClosed, inherited
from pronk.processes.messages import Message

SEND_SECONDS = 5.0
_channel: Channel | None = None


def connect() -> None:
    """Take over the inherited channel, before anything else of this process is started."""
    global _channel
    _channel = inherited()


def report(message: Message) -> None:
    """Send a message to the process that started this one. Does nothing without a channel."""
    if _channel is not None:
        with contextlib.suppress(ChannelClosed):
            _channel.send(message, SEND_SECONDS)
