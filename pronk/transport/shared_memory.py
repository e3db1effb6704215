"""Between processes of one machine: each actor owns a few slots of shared memory and one socket.

    memory   an anonymous file per actor, cut into slots of one unroll each; one more file for the parameters
    socket   carries only slot numbers: learner -> actor "free", actor -> learner "filled"

No lock or queue is shared between processes, so a `kill -9` at any instant costs one unfinished unroll: its number was
never sent. Descriptors are handed over when a process is started, so nothing has a name and nothing can be left behind.

One more channel may lead to the gateway (`gateway.py`), which fills its many slots with what actors of other machines
send: to the learner they are all the same.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pronk.layout import UnrollLayout
from pronk.transport.base import Closed, WhileWaiting
from pronk.transport.memory import HEADER, ParameterExchange, Slots, anonymous_memory, map_memory
from pronk.types import Parameters, Unroll

POLL_SECONDS = 0.05  # how often a waiting learner looks after its actors
RECORD = struct.Struct("<II")  # a slot, and the number of the actor whose unroll it holds
FINISHED = 0xFFFFFFFF  # in the place of a slot: the run has reached its end, so nobody need wait for its return


@dataclass
class Ticket:
    """What an actor process needs to join: descriptors to inherit."""

    actor: int
    slots: int
    unrolls: int
    parameters: int
    socket: int

    @property
    def descriptors(self) -> list[int]:
        """To be inherited by the process."""
        return [self.unrolls, self.parameters, self.socket]


@dataclass
class Channel:
    """The learner's end of one process."""

    memory: int
    slots: int
    views: Slots
    socket: socket.socket | None = None
    busy: set[int] = field(default_factory=set)  # slots the learner holds or has yet to take


@dataclass
class Member:
    """One actor, over all its lives and wherever it plays."""

    busy: int = 0  # its unrolls that the learner holds or has yet to take
    delivered: int = 0
    delivered_at: float = 0.0


class SharedMemoryTransport:
    """The learner's port to all actors, and the maker of their tickets."""

    def __init__(
        self, layout: UnrollLayout, parameters_nbytes: int, actors: int, slots: int, gateway_slots: int = 0
    ) -> None:
        self._slots = slots
        self._parameters_memory = anonymous_memory(HEADER + 2 * parameters_nbytes)
        self._parameters = ParameterExchange(map_memory(self._parameters_memory), parameters_nbytes)
        self._channels = []
        for count in [slots] * actors + [gateway_slots] * bool(gateway_slots):
            memory = anonymous_memory(count * layout.nbytes)
            self._channels.append(Channel(memory, count, Slots(map_memory(memory), layout)))
        self._members: dict[int, Member] = {}
        self._selector = selectors.DefaultSelector()
        self._filled: deque[tuple[Channel, int, Member]] = deque()
        self.room = slots * actors
        self.while_waiting: WhileWaiting = lambda: None

    def __enter__(self) -> SharedMemoryTransport:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        """Hang up: every actor gets `Closed`. Only after a good end is there nothing to come back for."""
        for channel in self._channels:
            if channel.socket is not None and error is None:
                with contextlib.suppress(OSError):
                    channel.socket.sendall(RECORD.pack(FINISHED, 0))
            self._hang_up(channel)
            os.close(channel.memory)
        os.close(self._parameters_memory)
        self._selector.close()
        self._channels.clear()  # the views, and with them the memory
        self._filled.clear()
        self.while_waiting = lambda: None

    def connect(self, actor: int) -> tuple[Ticket, contextlib.closing]:
        """A ticket for a new process of this actor, and the descriptor to close once the process has inherited it.

        The gateway's number is that after the last actor's.
        """
        channel = self._channels[actor]
        self._receive(0.0)  # what the last process of this actor sent before it died is whole
        self._hang_up(channel)
        ours, theirs = socket.socketpair()
        channel.socket = ours
        self.restarted(actor)
        self._selector.register(ours, selectors.EVENT_READ, channel)
        free = [slot for slot in range(channel.slots) if slot not in channel.busy]
        ours.sendall(b"".join(RECORD.pack(slot, actor) for slot in free))
        ticket = Ticket(actor, channel.slots, channel.memory, self._parameters_memory, theirs.fileno())
        return ticket, contextlib.closing(theirs)

    def publish(self, parameters: Parameters) -> None:
        """Write the idle half, then flip."""
        self._parameters.write(parameters)

    @contextlib.contextmanager
    def unrolls(self, count: int) -> Iterator[list[Unroll]]:
        """Wait for `count`, looking after the actors meanwhile."""
        self._receive(0.0)
        while len(self._filled) < count:
            self._receive(POLL_SECONDS)
            self.while_waiting()
        taken = [self._filled.popleft() for _ in range(count)]
        try:
            yield [channel.views[slot] for channel, slot, _ in taken]
        finally:
            for channel, slot, member in taken:
                self._release(channel, slot, member)

    @property
    def waiting(self) -> int:
        """Filled and not taken."""
        self._receive(0.0)
        return len(self._filled)

    def delivered(self, actor: int) -> int:
        """Unrolls this actor has sent, over all its lives."""
        return self._member(actor).delivered

    def filled(self, actor: int) -> int:
        """How many of this actor's slots wait to be learnt from."""
        return self._member(actor).busy

    def silent_seconds(self, actor: int) -> float:
        """How long this actor has sent nothing although it has a free slot."""
        self._receive(0.0)
        member = self._member(actor)
        return 0.0 if member.busy == self._slots else time.monotonic() - member.delivered_at

    def restarted(self, actor: int) -> None:
        """From now on its silence counts."""
        self._member(actor).delivered_at = time.monotonic()

    def _member(self, actor: int) -> Member:
        return self._members.setdefault(actor, Member())

    def _receive(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            channel: Channel = key.data
            records = receive(channel.socket)
            if not records:
                self._hang_up(channel)  # the actor is gone; what it had sent is whole and stays
            for slot, actor in records:
                member = self._member(actor)
                channel.busy.add(slot)
                member.busy += 1
                member.delivered += 1
                member.delivered_at = time.monotonic()
                self._filled.append((channel, slot, member))

    def _release(self, channel: Channel, slot: int, member: Member) -> None:
        channel.busy.discard(slot)
        if member.busy == self._slots:
            member.delivered_at = time.monotonic()  # it could not have sent anything before
        member.busy -= 1
        if channel.socket is not None:
            with contextlib.suppress(OSError):  # it died this instant; the next `_receive` says so
                channel.socket.sendall(RECORD.pack(slot, 0))

    def _hang_up(self, channel: Channel) -> None:
        if channel.socket is not None:
            self._selector.unregister(channel.socket)
            channel.socket.close()
            channel.socket = None


class SharedMemoryActorPort:
    """The actor's end, in the actor's process."""

    def __init__(self, ticket: Ticket, layout: UnrollLayout, parameters_nbytes: int) -> None:
        self._actor = ticket.actor
        self._views = Slots(map_memory(ticket.unrolls), layout)
        self._parameters = ParameterExchange(map_memory(ticket.parameters), parameters_nbytes)
        self._socket = socket.socket(fileno=ticket.socket)
        self._free: deque[int] = deque()

    def parameters(self) -> Parameters:
        """The newest; the same object while there are no newer ones."""
        return self._parameters.read()

    @contextlib.contextmanager
    def unroll(self) -> Iterator[Unroll]:
        """A free slot; its number is sent when the block is left in good order."""
        if not self._free:
            self._free.extend(slot for slot, _ in receive(self._socket) if slot != FINISHED)
        if not self._free:
            raise Closed
        slot = self._free.popleft()
        try:
            yield self._views[slot]
        except BaseException:
            self._free.appendleft(slot)
            raise
        try:
            self._socket.sendall(RECORD.pack(slot, self._actor))
        except OSError as error:
            raise Closed from error


def receive(connection: Any) -> list[tuple[int, int]]:
    """Some records, or none when the other side is gone. Far fewer are ever under way than a socket holds, so each
    arrives whole."""
    try:
        return list(RECORD.iter_unpack(connection.recv(512 * RECORD.size)))
    except ConnectionError:
        return []
