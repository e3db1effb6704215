"""A learner other than 0: joins learner 0, gets everything from it, and steps when learner 0 is ready.

While it waits for anything it sends learner 0 a message every second. So learner 0 can distinguish a learner that is
stopped or hangs from one whose actors are slow.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from pronk import __version__
from pronk.learners.base import Contribution, GroupEnded
from pronk.learners.distributed import (
    JOIN_SECONDS,
    KEY,
    POLL_SECONDS,
    DistributedGroup,
    LongWait,
    Regrouping,
    first_line,
)
from pronk.learners.peer_channel import SEND_SECONDS, PeerChannel
from pronk.learners.rendezvous import Rendezvous
from pronk.processes import messages
from pronk.processes.channel import ChannelClosed
from pronk.types import Failure

ALIVE_SECONDS = 1.0  # between two heartbeats
QUIET_SECONDS = 60.0  # without a message of learner 0, before that is mentioned; then after twice as long, and so on
Expected = TypeVar("Expected", bound=messages.Message)


def connect_to_store(rendezvous: Rendezvous, say: Callable[[str], None]) -> Any:
    """Wait for learner 0, which may be started minutes later, and return its store."""
    import torch.distributed as dist

    wait, address = LongWait(JOIN_SECONDS), f"{rendezvous.host}:{rendezvous.port}"

    def pause() -> None:
        if wait.is_over:
            raise Failure(f"learner 0 does not answer at {address}")
        if waited := wait.mention():
            say(f"learner {rendezvous.rank} has waited for learner 0 at {address}{waited}")
        time.sleep(4 * POLL_SECONDS)

    if rendezvous.listens:
        while not answers(rendezvous.host, rendezvous.port):  # torch would wait, too, but without noticing Ctrl-C
            pause()
        store = dist.TCPStore(rendezvous.host, rendezvous.port, rendezvous.count, False, wait_for_workers=False)
    else:
        store, _, _ = next(iter(dist.rendezvous("env://", rendezvous.rank, rendezvous.count)))
    while not store.check([KEY]):
        pause()
    return store


def answers(host: str, port: int) -> bool:
    """Return whether a process listens there."""
    try:
        socket.create_connection((host, port), timeout=5.0).close()
    except OSError:
        return False
    return True


class Participant(DistributedGroup):
    """A learner with a channel to learner 0."""

    def __init__(self, rendezvous: Rendezvous, say: Callable[[str], None]) -> None:
        """Join learner 0; `say` gets a line while it does not answer."""
        try:
            store = connect_to_store(rendezvous, say)
            found = messages.decode(store.get(KEY))
            if isinstance(found, messages.Leaving):
                raise GroupEnded(found.outcome, found.message)
            assert isinstance(found, messages.JoinAt)
            self._channel = PeerChannel(socket.create_connection((rendezvous.host, found.port)))
            self._channel.send(messages.Hello(rendezvous.rank, found.token, __version__), SEND_SECONDS)
        except (OSError, RuntimeError, ChannelClosed) as error:
            where = f"{rendezvous.host}:{rendezvous.port}"
            raise Failure(f"learner 0 at {where} is gone ({first_line(error)})") from None
        super().__init__(rendezvous, store)
        self._inbox: deque[messages.Message] = deque()
        self._sent_at = 0.0
        self._say_here = say

    def welcome(self) -> messages.Welcome:
        """Wait for what learner 0 announces."""
        message = self._wait_for(messages.Welcome)
        self.reduction = message.reduction
        return message

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.leave("failed", str(error))  # unless another reason was given before
        self._channel.close()
        super().__exit__(kind, error, trace)

    def say(self, text: str) -> None:
        """Show the user a line, through learner 0."""
        self._send(messages.Notice(text))

    def _agree(self, host: str, device: str) -> tuple[messages.Begin, str]:
        self._send(messages.Ready(host, device))
        while True:
            with contextlib.suppress(Regrouping):  # learner 0 asked before it had read this Ready
                return self._wait_for(messages.Begin), self._channel.own_host

    def exchange(self, mine: Contribution) -> Contribution:
        """See `DistributedGroup`. Learner 0 may have replied already, so an interrupt only asks it to end the run."""
        self._send(messages.Contributed(list(mine)))
        return Contribution.from_plain(self._wait_for(messages.Contributed).contribution)

    def _decided(self, decision: Callable[[], bool]) -> bool:
        return self._wait_for(messages.Decided).value

    def _look(self) -> None:
        self._receive(0.0)
        if self._inbox and isinstance(self._inbox[0], messages.Regroup):
            self._inbox.popleft()
            raise Regrouping("learner 0 forms the group again")

    def _send_leaving(self, leaving: messages.Leaving) -> None:
        self._send(leaving)

    def _wait_for(self, kind: type[Expected]) -> Expected:
        """Wait for the next message, which must be of this kind. No timeout: nothing can replace learner 0."""
        self._receive(0.0)
        wait = LongWait(first=QUIET_SECONDS)
        while not self._inbox:
            if self._interrupts.poll():
                self.leave("interrupted")
            self._receive(POLL_SECONDS)
            if not self._inbox and (waited := wait.mention()):
                where = f"learner 0 at {self._channel.other_host}"
                self._say_here(f"{where} has said nothing{waited}: it is stopped, hangs, or waits for its actors")
        message = self._inbox.popleft()
        if isinstance(message, messages.Regroup):
            raise Regrouping("learner 0 forms the group again")
        if not isinstance(message, kind):
            raise Failure(f"learner 0 sent {type(message).__name__}, expected {kind.__name__}")
        return message

    def _receive(self, seconds: float) -> None:
        """Read messages into the inbox; wait up to `seconds` for any. Raises `GroupEnded` if learner 0 is gone or ends.

        What learner 0 sent before it left is handled first.
        """
        if time.monotonic() - self._sent_at > ALIVE_SECONDS:
            self._send(messages.Alive())
        try:
            self._inbox.extend(self._channel.receive(seconds))
        except ChannelClosed as closed:
            if not self._inbox:
                raise GroupEnded("failed", f"learner 0 is gone ({self._channel.other_host}: {closed})") from None
        if self._inbox and isinstance(self._inbox[0], messages.Leaving):
            raise GroupEnded(self._inbox[0].outcome, self._inbox[0].message)

    def _send(self, message: messages.Message) -> None:
        self._sent_at = time.monotonic()
        with contextlib.suppress(ChannelClosed):  # `_receive` reports it
            self._channel.send(message, SEND_SECONDS)
