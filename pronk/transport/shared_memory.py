"""Transport between processes of one machine: each actor owns a few slots of shared memory and one socket.

    memory   an anonymous file per actor, cut into slots of one unroll each; one more file for the parameters
    socket   carries only slot numbers: learner -> actor "free", actor -> learner "filled"

No lock or queue is shared between processes, so a `kill -9` at any instant costs one unfinished unroll: its slot number
was never sent. Processes inherit descriptors of memory without a name, so nothing can be left in /dev/shm.

The gateway (`gateway.py`) is connected in the same way. It has many slots, and fills them with unrolls of actors on
other machines. The learner sees no difference.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from pronk.layout import UnrollLayout
from pronk.transport.base import Closed, WhileWaiting
from pronk.transport.memory import HEADER, ParameterExchange, Slots, anonymous_memory, map_memory
from pronk.transport.slot_socket import FINISHED, SlotSocket
from pronk.types import Parameters, Unroll

POLL_SECONDS = 0.05  # how often a waiting learner calls `while_waiting`
STARVING_SECONDS = 1.0
FINISH_SECONDS = 1.0  # for all processes together to take what they were sent, when the run has ended


@dataclass
class Ticket:
    """What an actor process needs to connect: numbers and inherited descriptors."""

    actor: int
    slots: int
    unrolls: int
    parameters: int
    socket: int
    busy: list[int]
    """Slots that are not free yet. Not sent over the socket, whose buffer is too small for the many of a gateway."""

    @property
    def descriptors(self) -> list[int]:
        """For the process to inherit."""
        return [self.unrolls, self.parameters, self.socket]

    @property
    def free(self) -> list[int]:
        """Slots that the process may fill at once."""
        return sorted({*range(self.slots)} - {*self.busy})


@dataclass(frozen=True)
class ReaderTicket:
    """What a process needs that only reads parameters: an inherited descriptor, and the size of a block in bytes."""

    parameters: int
    nbytes: int


@dataclass
class SlotLink:
    """The learner's end of the slots and the socket of one process."""

    memory: int
    slots: int
    views: Slots
    socket: SlotSocket | None = None
    busy: set[int] = field(default_factory=set)  # slots the learner holds or has yet to take
    events: int = selectors.EVENT_READ  # of the socket, that the selector looks for


@dataclass
class ActorTally:
    """Counts of one actor, over all its restarts, here or on another machine."""

    busy: int = 0  # its unrolls that the learner holds or has yet to take
    delivered: int = 0
    delivered_at: float = 0.0


class SharedMemoryTransport:
    """The learner's port to all actors. Makes their tickets."""

    def __init__(
        self, layout: UnrollLayout, parameters_nbytes: int, actors: int, slots: int, gateway_slots: int = 0
    ) -> None:
        self._slots, self._parameters_nbytes = slots, parameters_nbytes
        self._parameters_memory = anonymous_memory(HEADER + 2 * parameters_nbytes)
        self._parameters = ParameterExchange(map_memory(self._parameters_memory), parameters_nbytes)
        self._links = []
        for count in [slots] * actors + [gateway_slots] * bool(gateway_slots):
            memory = anonymous_memory(count * layout.nbytes)
            self._links.append(SlotLink(memory, count, Slots(map_memory(memory), layout)))
        self._tallies: dict[int, ActorTally] = {}
        self._selector = selectors.DefaultSelector()
        self._filled: deque[tuple[SlotLink, int, ActorTally]] = deque()
        self.room = slots * actors
        self.while_waiting: WhileWaiting = lambda: None
        self.while_starving: WhileWaiting = lambda: None

    def __enter__(self) -> SharedMemoryTransport:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        """Close all sockets: every actor gets `Closed`. After a failure, remote actors wait for a restart."""
        deadline = time.monotonic() + FINISH_SECONDS
        for link in self._links:
            if link.socket is not None and error is None:
                link.socket.finish(max(0.0, deadline - time.monotonic()))
            self._disconnect(link)
            os.close(link.memory)
        os.close(self._parameters_memory)
        self._selector.close()
        self._links.clear()  # frees the views, and with them the memory
        self._filled.clear()
        self.while_waiting = self.while_starving = lambda: None

    def connect(self, actor: int) -> tuple[Ticket, contextlib.closing]:
        """Return a ticket for a new process of this actor, and the socket to close once the process has inherited it.

        The gateway has the number after the last actor's.
        """
        link = self._links[actor]
        self._receive(0.0)  # take what the last process of this actor sent before it died: these slots are complete
        self._disconnect(link)
        ours, theirs = socket.socketpair()
        link.socket, link.events = SlotSocket(ours), selectors.EVENT_READ
        self.restarted(actor)
        self._selector.register(link.socket, link.events, link)
        ticket = Ticket(actor, link.slots, link.memory, self._parameters_memory, theirs.fileno(), sorted(link.busy))
        return ticket, contextlib.closing(theirs)

    def reader(self) -> ReaderTicket:
        """Return a ticket for processes that only read parameters. It is valid until the port is closed."""
        return ReaderTicket(self._parameters_memory, self._parameters_nbytes)

    def publish(self, parameters: Parameters) -> None:
        """See `LearnerPort`."""
        self._parameters.write(parameters)

    @contextlib.contextmanager
    def unrolls(self, count: int) -> Iterator[list[Unroll]]:
        """See `LearnerPort`. Calls `while_waiting` while it waits."""
        self._receive(0.0)
        began = time.monotonic()
        while len(self._filled) < count:
            self._receive(POLL_SECONDS)
            self.while_waiting()
            if time.monotonic() - began > STARVING_SECONDS:
                self.while_starving()
        taken = [self._filled.popleft() for _ in range(count)]
        try:
            yield [link.views[slot] for link, slot, _ in taken]
        finally:
            for link, slot, tally in taken:
                self._release(link, slot, tally)

    @property
    def waiting(self) -> int:
        """See `LearnerPort`."""
        self._receive(0.0)
        return len(self._filled)

    def delivered(self, actor: int) -> int:
        """Return how many unrolls this actor has sent, over all its restarts."""
        return self._tally(actor).delivered

    def filled(self, actor: int) -> int:
        """Return how many unrolls of this actor the learner has not freed yet."""
        return self._tally(actor).busy

    def silent_seconds(self, actor: int) -> float:
        """Return for how many seconds this actor has sent nothing although it has a free slot."""
        self._receive(0.0)
        tally = self._tally(actor)
        return 0.0 if tally.busy == self._slots else time.monotonic() - tally.delivered_at

    def restarted(self, actor: int) -> None:
        """Reset the clock of `silent_seconds`: this actor was just started."""
        self._tally(actor).delivered_at = time.monotonic()

    def _tally(self, actor: int) -> ActorTally:
        return self._tallies.setdefault(actor, ActorTally())

    def _receive(self, timeout: float) -> None:
        for key, events in self._selector.select(timeout):
            link: SlotLink = key.data
            assert link.socket is not None
            if events & selectors.EVENT_WRITE:
                self._flush(link)
            try:
                records = link.socket.receive()
            except Closed:
                self._disconnect(link)  # the actor is gone; what it had sent is complete and stays
                continue
            for slot, actor in records:
                tally = self._tally(actor)
                link.busy.add(slot)
                tally.busy += 1
                tally.delivered += 1
                tally.delivered_at = time.monotonic()
                self._filled.append((link, slot, tally))

    def _release(self, link: SlotLink, slot: int, tally: ActorTally) -> None:
        link.busy.discard(slot)
        if tally.busy == self._slots:
            tally.delivered_at = time.monotonic()  # all its slots were filled, so it could not send until now
        tally.busy -= 1
        if link.socket is not None:
            link.socket.put(slot)
            self._flush(link)

    def _flush(self, link: SlotLink) -> None:
        """Send which slots are free. What there is no room for is sent by `_receive`, as soon as there is."""
        assert link.socket is not None
        with contextlib.suppress(Closed):  # it has just died; the next `_receive` notices
            events = selectors.EVENT_READ | (0 if link.socket.flush() else selectors.EVENT_WRITE)
            if events != link.events:
                self._selector.modify(link.socket, events, link)
                link.events = events

    def _disconnect(self, link: SlotLink) -> None:
        if link.socket is not None:
            self._selector.unregister(link.socket)
            link.socket.close()
            link.socket = None


class SharedMemoryReader:
    """See `ParameterReader`. It does not notice when the learner is gone, and never raises `Closed`."""

    def __init__(self, ticket: ReaderTicket) -> None:
        self._parameters = ParameterExchange(map_memory(ticket.parameters), ticket.nbytes)

    def parameters(self) -> Parameters:
        """See `ParameterReader`. Returns the same object until there are newer parameters."""
        return self._parameters.read()

    @property
    def version(self) -> int:
        """Version of the newest parameters; costs no copy."""
        return self._parameters.version


class SharedMemoryActorPort:
    """The actor's port, in the actor's process."""

    def __init__(self, ticket: Ticket, layout: UnrollLayout, parameters_nbytes: int) -> None:
        self._actor = ticket.actor
        self._views = Slots(map_memory(ticket.unrolls), layout)
        self._parameters = ParameterExchange(map_memory(ticket.parameters), parameters_nbytes)
        self._socket = SlotSocket(socket.socket(fileno=ticket.socket), blocking=True)
        self._free = deque(ticket.free)

    def parameters(self) -> Parameters:
        """See `ActorPort`. Returns the same object until there are newer parameters."""
        return self._parameters.read()

    @contextlib.contextmanager
    def unroll(self) -> Iterator[Unroll]:
        """See `ActorPort`."""
        while not self._free:
            self._free.extend(slot for slot, _ in self._socket.receive() if slot != FINISHED)
        slot = self._free.popleft()
        try:
            yield self._views[slot]
        except BaseException:
            self._free.appendleft(slot)
            raise
        self._socket.put(slot, self._actor)
        self._socket.flush()
