"""Learner 0: waits for the others, merges their contributions, and forms the group again when one is gone or comes.

A learner that reports an end (a failure of its own, Ctrl-C) ends the run. One that disappears without a message was
killed or lost its machine: the others continue without it, and with it again when it is back.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pronk.learners.admission import Admission
from pronk.learners.base import Contribution, GroupEnded
from pronk.learners.collective import backend_for
from pronk.learners.distributed import JOIN_SECONDS, KEY, POLL_SECONDS, DistributedGroup, LongWait, Regrouping
from pronk.learners.local_learners import LocalLearners
from pronk.learners.peer_channel import SEND_SECONDS, PeerChannel, listen
from pronk.learners.rendezvous import Rendezvous
from pronk.processes.channel import ChannelClosed, ready
from pronk.processes.interrupts import Interrupted
from pronk.processes.messages import (
    Begin,
    Contributed,
    Decided,
    JoinAt,
    Leaving,
    Message,
    Notice,
    Ready,
    Regroup,
    Welcome,
    encode,
)
from pronk.types import Failure

LOOPBACK = "127.0.0.1"


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


@dataclass
class Peer:
    """Another learner that has joined."""

    channel: PeerChannel
    is_member: bool = False
    """Whether it is part of the present formation."""
    ready: Ready | None = None
    """Its message, if it waits to be part of the next formation."""
    contribution: Contributed | None = None
    """To the present exchange."""
    contributed: int = 0
    """Exchanges that it has taken part in."""
    last_message_at: float = field(default_factory=time.monotonic)

    def begin(self) -> None:
        """Become a member of a formation."""
        self.is_member, self.ready, self.contribution = True, None, None
        self.last_message_at = time.monotonic()

    @property
    def silent_seconds(self) -> float:
        """Seconds since its last message. While it waits for anything it sends one every second."""
        return time.monotonic() - self.last_message_at


class Coordinator(DistributedGroup):
    """Learner 0, with a channel to every other."""

    def __init__(
        self, rendezvous: Rendezvous, reduction: str, say: Callable[[str], None], timeout_seconds: float
    ) -> None:
        store, self._rendezvous = open_store(rendezvous)
        super().__init__(rendezvous, store)
        self.reduction = reduction
        self._starts_others, self._say, self._timeout = not rendezvous.host, say, timeout_seconds
        self._admission = Admission(self._rendezvous.host, self.count)
        self._local: LocalLearners | None = None
        self._logs = Path()
        self._gathering = False
        self._peers: dict[int, Peer] = {}  # by rank
        self._size = 1  # learners in the present formation
        self._attempts = -1  # to form a group, numbered from 0

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.leave("failed", f"learner 0 failed: {error}")  # unless another reason was given before
        for peer in self._peers.values():
            peer.channel.close()
        self._admission.close()
        super().__exit__(kind, error, trace)

    def announce(self, config: str, run: str, logs: Path) -> None:
        """Set what every learner gets when it joins, and the log folder of those that are started here."""
        self._admission.welcome, self._logs = Welcome(config, run, self.reduction), logs

    def exchange(self, mine: Contribution) -> Contribution:
        """See `DistributedGroup`."""
        self._wait_for_contributions()
        parts = {0: mine}
        for rank, peer in sorted(self._members.items()):
            assert peer.contribution is not None
            parts[rank], peer.contribution = Contribution.from_plain(peer.contribution.contribution), None
            peer.contributed += 1
        if any(part.version != mine.version for part in parts.values()):
            raise Failure(f"the learners are at different versions: {[part.version for part in parts.values()]}")
        merged = Contribution.merged(parts, self.reduction)
        self._send(self._members, Contributed(list(merged)))
        return merged

    def _decided(self, decision: Callable[[], bool]) -> bool:
        formation, value = self._formation, decision()
        if self._formation == formation:
            self._send(self._members, Decided(value))
        return value

    def _look(self) -> None:
        self._receive(0.0)
        if self._must_regroup:
            raise Regrouping("a learner is gone or has come")

    def _send_leaving(self, leaving: Leaving) -> None:
        self._send(self._peers, leaving)
        if not self._gathering:  # learners that have not joined yet find it in the store
            with contextlib.suppress(RuntimeError):
                self._store.set(KEY, encode(leaving))

    @property
    def _members(self) -> dict[int, Peer]:
        """Those that are part of the present formation and not gone."""
        return {rank: peer for rank, peer in self._peers.items() if peer.is_member}

    @property
    def _must_regroup(self) -> bool:
        lost = len(self._members) + 1 < self._size
        return lost or any(peer.ready is not None for peer in self._peers.values())

    def _agree(self, host: str, device: str) -> tuple[Begin, str]:
        first = not self._gathering
        before, self._size = self._size, 1  # from here on, no member of the last formation counts as lost
        if first:
            self._start_others()
        else:
            self._send({rank: peer for rank, peer in self._members.items() if peer.ready is None}, Regroup())
        self._wait_until_ready({*range(1, self.count)} if first else set())
        ready = {rank: peer for rank, peer in sorted(self._peers.items()) if peer.ready is not None}
        devices = [(host, device), *((peer.ready.host, peer.ready.device) for peer in ready.values() if peer.ready)]
        assert self._shared is not None
        self._attempts += 1  # failed ones count, too: what one left in the store must not mislead the next
        begin = Begin(self._shared.state(), backend_for(devices), self._attempts, [0, *ready])
        for peer in ready.values():
            peer.begin()
        self._size = len(begin.ranks)
        self._send(ready, begin)
        if not first and self._size > before:
            self._say(f"training continues with {self._size} of {self.count} learners")
        return begin, next((peer.channel.own_host for peer in ready.values()), self._rendezvous.host)

    def _start_others(self) -> None:
        """Let the other learners join, and start them if that is this process's task."""
        self._gathering = True
        self._store.set(KEY, encode(JoinAt(self._admission.port, self._admission.token)))
        if self._starts_others:
            local = LocalLearners(self._rendezvous, self._logs, self._silent_seconds, self._updates_of, self._timeout)
            self._local = self._stack.enter_context(local)

    def _wait_until_ready(self, wanted: set[int]) -> None:
        """Wait until all members, and the `wanted` ranks, are ready to form a group."""
        address, wait = f"{self._rendezvous.host}:{self._rendezvous.port}", LongWait(JOIN_SECONDS)
        while True:
            waiting_for = sorted(
                rank
                for rank in wanted | self._members.keys()
                if rank not in self._peers or self._peers[rank].ready is None
            )
            if not waiting_for:
                return
            self._wait_a_moment()
            if wait.is_over:
                raise Failure(f"{names_of(waiting_for)} did not join at {address} within {JOIN_SECONDS:.0f} s")
            if waited := wait.mention():
                start = "to start" if self._local else f"to join at {address}"
                self._say(f"waiting for {names_of(waiting_for)}{waited} {start}{self._stopped(waiting_for)}")

    def _wait_for_contributions(self) -> None:
        wait = LongWait()
        while missing := sorted(rank for rank, peer in self._members.items() if peer.contribution is None):
            self._wait_a_moment()
            if self._must_regroup:
                raise Regrouping("a learner is gone or has come")
            still_missing = [rank for rank in missing if self._peers[rank].contribution is None]
            if still_missing and (waited := wait.mention()):
                why = self._stopped(still_missing) or ": their actors are slow, or they hang"
                self._say(f"waiting for {names_of(still_missing)}{waited}{why}")

    def _wait_a_moment(self) -> None:
        if self._interrupts.poll():
            raise Interrupted
        self._receive(POLL_SECONDS)
        for rank, peer in list(self._members.items()):
            if not self._local and peer.silent_seconds > self._timeout:
                self._lose(rank, f"{peer.channel.other_host}: no sign of life for {self._timeout:g} s")

    def _stopped(self, ranks: list[int]) -> str:
        """Return which of these learners are stopped by SIGSTOP, as far as that can be seen from here."""
        stopped = [rank for rank in ranks if self._local and self._local.is_stopped(rank)]
        return f": {names_of(stopped)} {'is' if len(stopped) == 1 else 'are'} stopped (SIGSTOP)" if stopped else ""

    def _receive(self, seconds: float) -> None:
        """Handle what has come; wait up to `seconds` for it. Raises `GroupEnded` when a learner ends the run."""
        by_channel = {peer.channel: rank for rank, peer in self._peers.items()}
        for source in ready([*by_channel, *self._admission.sources], seconds):
            if source not in by_channel:
                if admitted := self._admission.handle(source, self._peers):
                    rank, channel = admitted
                    self._peers[rank] = Peer(channel)
                continue
            rank = by_channel[source]
            try:
                messages = source.receive()
            except ChannelClosed as closed:
                how = self._local.how_it_ended(rank) if self._local else f"{source.other_host}: {closed}"
                self._lose(rank, how)
                continue
            self._handle(rank, messages)
        if self._local:  # after its messages: a learner may have ended the run, and then itself
            self._local.watch()

    def _handle(self, rank: int, messages: list[Message]) -> None:
        peer = self._peers[rank]
        peer.last_message_at = time.monotonic()
        for message in messages:
            match message:
                case Notice():
                    self._say(f"learner {rank}: {message.text}")
                case Leaving():
                    raise GroupEnded(message.outcome, f"learner {rank}: {message.message}" if message.message else None)
                case Ready():
                    peer.ready, peer.contribution = message, None
                case Contributed():
                    peer.contribution = message

    def _send(self, peers: dict[int, Peer], message: Message) -> None:
        for peer in peers.values():
            with contextlib.suppress(ChannelClosed):  # the next `_receive` finds that
                peer.channel.send(message, SEND_SECONDS)

    def _lose(self, rank: int, how: str) -> None:
        """Continue without a learner, until it is back."""
        peer = self._peers.pop(rank)
        peer.channel.close()
        if peer.is_member:
            left = f"training continues with {len(self._members) + 1} of {self.count} learners"
            back = "it is restarted" if self._local else "it may join again"
            self._say(f"learner {rank} is gone ({how}); {left}, and {back}")

    def _silent_seconds(self, rank: int) -> float:
        return peer.silent_seconds if (peer := self._peers.get(rank)) and peer.is_member else 0.0

    def _updates_of(self, rank: int) -> int:
        return peer.contributed if (peer := self._peers.get(rank)) else 0


def names_of(ranks: list[int]) -> str:
    """Return what users call these learners: `learner 1`, or `learners 1, 3`."""
    return f"learner{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
