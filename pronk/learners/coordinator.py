"""Learner 0: waits for the others, merges their contributions, and ends all of them when one leaves."""

from __future__ import annotations

import contextlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pronk import __version__
from pronk.learners.base import Contribution, GroupEnded
from pronk.learners.collective import backend_for
from pronk.learners.distributed import JOIN_SECONDS, KEY, POLL_SECONDS, DistributedGroup, LongWait
from pronk.learners.local_learners import LocalLearners
from pronk.learners.peer_channel import SEND_SECONDS, PeerChannel, listen
from pronk.learners.rendezvous import Rendezvous
from pronk.processes.channel import ChannelClosed, ready
from pronk.processes.interrupts import Interrupted
from pronk.processes.messages import (
    Begin,
    Contributed,
    Hello,
    JoinAt,
    Leaving,
    Message,
    Notice,
    Ready,
    Welcome,
    encode,
)
from pronk.types import Failure

LOOPBACK = "127.0.0.1"
MOST_STRANGERS = 64  # connections that have not said who they are; the oldest is closed


def open_store(rendezvous: Rendezvous) -> tuple[Any, Rendezvous]:
    """Open the store where learners find one another; also return the rendezvous with its address."""
    import torch.distributed as dist

    if not rendezvous.listens:
        store, _, _ = next(iter(dist.rendezvous("env://", rendezvous.rank, rendezvous.count)))
        return store, rendezvous
    host = rendezvous.host or LOOPBACK
    listener = listen(host, rendezvous.port)
    rendezvous = replace(rendezvous, host=host, port=listener.getsockname()[1])
    store = dist.TCPStore(
        host, rendezvous.port, rendezvous.count, True, wait_for_workers=False, master_listen_fd=listener.detach()
    )
    return store, rendezvous


class Coordinator(DistributedGroup):
    """Learner 0, with a channel to every other."""

    def __init__(self, rendezvous: Rendezvous, reduction: str, say: Callable[[str], None]) -> None:
        store, self._rendezvous = open_store(rendezvous)
        super().__init__(rendezvous, store)
        self.reduction = reduction
        self._starts_others, self._say = not rendezvous.host, say
        self._listener = listen(self._rendezvous.host, 0)
        self._token = secrets.token_hex(16)
        self._local: LocalLearners | None = None
        self._welcome = Welcome("", "", reduction)
        self._logs = Path()
        self._gathering = False
        self._channels: dict[int, PeerChannel] = {}
        self._received: dict[int, Message] = {}  # what each learner sent for the present exchange, by rank

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.leave("failed", f"learner 0 failed: {error}")  # unless another reason was given before
        for channel in self._channels.values():
            channel.close()
        self._listener.close()
        super().__exit__(kind, error, trace)

    def announce(self, config: str, run: str, logs: Path) -> None:
        """Set what every learner gets when it joins, and the log folder of those that are started here."""
        self._welcome, self._logs = Welcome(config, run, self.reduction), logs

    def _agree(self, state: dict[str, Any], host: str, device: str) -> tuple[Begin, str]:
        self._gather()
        devices = [(host, device)]
        for message in self._all_others():
            assert isinstance(message, Ready)
            devices.append((message.host, message.device))
        begin = Begin(state, backend_for(devices))
        self._send_all(begin)
        return begin, next(iter(self._channels.values())).own_host

    def exchange(self, mine: Contribution) -> Contribution:
        """See `DistributedGroup`."""
        parts = [mine]
        for message in self._all_others():
            assert isinstance(message, Contributed)
            parts.append(Contribution.from_plain(message.contribution))
        if any(part.version != mine.version for part in parts):
            raise Failure(f"the learners are at different versions: {[part.version for part in parts]}")
        merged = Contribution.merged(parts, self.reduction)
        self._send_all(Contributed(list(merged)))
        return merged

    def _send_leaving(self, leaving: Leaving) -> None:
        self._send_all(leaving)
        if not self._gathering:  # learners that have not joined yet find it in the store
            with contextlib.suppress(RuntimeError):
                self._store.set(KEY, encode(leaving))

    def _gather(self) -> None:
        """Start the other learners if that is this process's task, and wait until all have joined."""
        self._gathering = True
        self._store.set(KEY, encode(JoinAt(self._listener.getsockname()[1], self._token)))
        if self._starts_others:
            self._local = self._stack.enter_context(LocalLearners(self._rendezvous, self._logs))
        strangers: list[PeerChannel] = []
        address, wait = f"{self._rendezvous.host}:{self._rendezvous.port}", LongWait(JOIN_SECONDS)
        try:
            while missing := sorted({*range(1, self.count)} - self._channels.keys()):
                if self._interrupts.requested:
                    raise Interrupted
                self._accept(strangers)
                self._receive(0.0)
                if self._local:
                    self._local.watch(missing)
                if wait.is_over:
                    raise Failure(f"{names_of(missing)} did not join at {address} within {JOIN_SECONDS:.0f} s")
                if waited := wait.mention():
                    start = "to start" if self._local else f"to join at {address}"
                    self._say(f"waiting for {names_of(missing)}{waited} {start}")
        finally:
            for channel in strangers:
                channel.close()

    def _accept(self, strangers: list[PeerChannel]) -> None:
        """Accept connections, and admit those that have said who they are."""
        for source in ready([self._listener, *strangers], POLL_SECONDS):
            if source is self._listener:
                strangers.append(PeerChannel(self._listener.accept()[0]))
            else:
                strangers.remove(source)
                self._admit(source)
        if len(strangers) > MOST_STRANGERS:
            strangers.pop(0).close()

    def _admit(self, channel: PeerChannel) -> None:
        """Admit a learner that knows the token, and only one of each rank."""
        try:
            hello = next(iter(channel.receive()), None)
            if not isinstance(hello, Hello) or not hmac.compare_digest(str(hello.token), self._token):
                channel.close()
                return
            problem = None
            if hello.version != __version__:
                problem = f"learner 0 is Pronk {__version__}, this is {hello.version}"
            elif hello.rank not in range(1, self.count) or hello.rank in self._channels:
                problem = f"learner 0 expects learners 1 to {self.count - 1}, each once, not learner {hello.rank}"
            channel.send(Leaving("failed", problem) if problem else self._welcome, SEND_SECONDS)
            if problem:
                channel.close()
            else:
                self._channels[hello.rank] = channel
        except ChannelClosed:
            channel.close()

    def _all_others(self) -> list[Message]:
        """Wait until every other learner has sent its part of an exchange; return these by rank."""
        wait = LongWait()
        while len(self._received) < self.count - 1:
            if self._interrupts.requested:
                raise Interrupted
            self._receive(POLL_SECONDS)
            missing = sorted({*range(1, self.count)} - self._received.keys())  # the last may just have come
            if missing and (waited := wait.mention()):
                self._say(f"waiting for {names_of(missing)}{waited}: their actors are slow, or they hang")
        received, self._received = self._received, {}
        return [received[rank] for rank in range(1, self.count)]

    def _receive(self, seconds: float) -> None:
        by_channel = {channel: rank for rank, channel in self._channels.items()}
        for channel in ready(list(by_channel), seconds):
            rank = by_channel[channel]
            try:
                messages = channel.receive()
            except ChannelClosed as closed:
                raise self._lost(rank, closed) from None
            for message in messages:
                match message:
                    case Notice():
                        self._say(f"learner {rank}: {message.text}")
                    case Leaving():
                        cause = f"learner {rank}: {message.message}" if message.message else None
                        raise GroupEnded(message.outcome, cause)
                    case _:
                        self._received[rank] = message

    def _send_all(self, message: Message) -> None:
        for channel in self._channels.values():
            with contextlib.suppress(ChannelClosed):  # the next `_receive` finds that
                channel.send(message, SEND_SECONDS)

    def _lost(self, rank: int, closed: ChannelClosed) -> GroupEnded:
        how = self._local.how_it_ended(rank) if self._local else f"{self._channels[rank].other_host}: {closed}"
        return GroupEnded("failed", f"learner {rank} is gone ({how}); resume the run to continue")

    def _find_lost(self) -> GroupEnded | None:
        """The learner that is gone has closed its channel; the others only report that the all-reduce failed."""
        for rank, channel in self._channels.items():
            try:
                channel.receive()
            except ChannelClosed as closed:
                return self._lost(rank, closed)
        return None


def names_of(ranks: list[int]) -> str:
    """Return what users call these learners: `learner 1`, or `learners 1, 3`."""
    return f"learner{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
