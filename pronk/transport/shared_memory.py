"""Between processes of one machine: each actor owns a few slots of shared memory and one socket.

    memory   an anonymous file per actor, cut into slots of one unroll each; one more file for the parameters
    socket   carries only slot numbers, one byte each: learner -> actor "free", actor -> learner "filled"

No lock or queue is shared between processes, so a `kill -9` at any instant costs one unfinished unroll: its number was
never sent. Descriptors are handed over when a process is started, so nothing has a name and nothing can be left behind.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import selectors
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pronk.layout import UnrollLayout
from pronk.transport.base import Closed, WhileWaiting
from pronk.types import Parameters, Unroll

HEADER = 64  # bytes before the two halves of the parameters: the version
POLL_SECONDS = 0.05  # how often a waiting learner looks after its actors


@dataclass
class Ticket:
    """What an actor process needs to join: descriptors to inherit."""

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
    """The learner's end of one actor."""

    memory: int
    views: list[Unroll]
    socket: socket.socket | None = None
    busy: set[int] = field(default_factory=set)  # slots the learner holds or has yet to take
    delivered: int = 0
    delivered_at: float = 0.0


class SharedMemoryTransport:
    """The learner's port to all actors, and the maker of their tickets."""

    def __init__(self, layout: UnrollLayout, parameters_nbytes: int, actors: int, slots: int) -> None:
        self._slots, self._nbytes = slots, parameters_nbytes
        self._parameters_memory = anonymous_memory(HEADER + 2 * parameters_nbytes)
        self._parameters = ParameterExchange(map_memory(self._parameters_memory), parameters_nbytes)
        self._channels = []
        for _ in range(actors):
            memory = anonymous_memory(slots * layout.nbytes)
            self._channels.append(Channel(memory, slot_views(map_memory(memory), layout, slots)))
        self._selector = selectors.DefaultSelector()
        self._filled: deque[tuple[Channel, int]] = deque()
        self.while_waiting: WhileWaiting = lambda: None

    def __enter__(self) -> SharedMemoryTransport:
        return self

    def __exit__(self, *_: object) -> None:
        """Hang up: every actor gets `Closed`."""
        for channel in self._channels:
            self._hang_up(channel)
            os.close(channel.memory)
        os.close(self._parameters_memory)
        self._selector.close()
        self._channels.clear()  # the views, and with them the memory
        self._filled.clear()
        self.while_waiting = lambda: None

    def connect(self, actor: int) -> tuple[Ticket, contextlib.closing]:
        """A ticket for a new process of this actor, and the descriptor to close once the process has inherited it."""
        channel = self._channels[actor]
        self._receive(0.0)  # what the last process of this actor sent before it died is whole
        self._hang_up(channel)
        ours, theirs = socket.socketpair()
        channel.socket, channel.delivered_at = ours, time.monotonic()
        self._selector.register(ours, selectors.EVENT_READ, channel)
        ours.sendall(bytes(slot for slot in range(self._slots) if slot not in channel.busy))
        ticket = Ticket(self._slots, channel.memory, self._parameters_memory, theirs.fileno())
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
            yield [channel.views[slot] for channel, slot in taken]
        finally:
            for channel, slot in taken:
                self._release(channel, slot)

    @property
    def waiting(self) -> int:
        """Filled and not taken."""
        self._receive(0.0)
        return len(self._filled)

    def delivered(self, actor: int) -> int:
        """Unrolls this actor has sent, over all its lives."""
        return self._channels[actor].delivered

    def filled(self, actor: int) -> int:
        """How many of this actor's slots wait to be learnt from."""
        return len(self._channels[actor].busy)

    def silent_seconds(self, actor: int) -> float:
        """How long this actor has sent nothing although it has a free slot."""
        self._receive(0.0)
        channel = self._channels[actor]
        return 0.0 if len(channel.busy) == self._slots else time.monotonic() - channel.delivered_at

    def _receive(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            channel: Channel = key.data
            numbers = receive(channel.socket)
            if not numbers:
                self._hang_up(channel)  # the actor is gone; what it had sent is whole and stays
            for slot in numbers:
                channel.busy.add(slot)
                channel.delivered += 1
                channel.delivered_at = time.monotonic()
                self._filled.append((channel, slot))

    def _release(self, channel: Channel, slot: int) -> None:
        channel.busy.discard(slot)
        if len(channel.busy) == self._slots - 1:
            channel.delivered_at = time.monotonic()  # it could not have sent anything before
        if channel.socket is not None:
            with contextlib.suppress(OSError):  # it died this instant; the next `_receive` says so
                channel.socket.sendall(bytes([slot]))

    def _hang_up(self, channel: Channel) -> None:
        if channel.socket is not None:
            self._selector.unregister(channel.socket)
            channel.socket.close()
            channel.socket = None


class SharedMemoryActorPort:
    """The actor's end, in the actor's process."""

    def __init__(self, ticket: Ticket, layout: UnrollLayout, parameters_nbytes: int) -> None:
        self._views = slot_views(map_memory(ticket.unrolls), layout, ticket.slots)
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
            self._free.extend(receive(self._socket))
        if not self._free:
            raise Closed
        slot = self._free.popleft()
        try:
            yield self._views[slot]
        except BaseException:
            self._free.appendleft(slot)
            raise
        try:
            self._socket.sendall(bytes([slot]))
        except OSError as error:
            raise Closed from error


class ParameterExchange:
    """One writer, many readers, no lock: two halves and a version.

    The writer fills the half that is not current and then flips the version. A reader copies the current half and looks
    at the version again: if it moved meanwhile, the writer may have begun on the half just read, so it reads anew.
    """

    def __init__(self, memory: mmap.mmap, nbytes: int) -> None:
        self._flips = np.ndarray((1,), np.int64, memory)  # how often it was written; 0: never
        self._versions = np.ndarray((2,), np.int64, memory, offset=8)
        self._halves = np.ndarray((2, nbytes), np.uint8, memory, offset=HEADER)
        self._read_flips = 0
        self._latest = Parameters(-1, np.zeros(nbytes, np.uint8))

    def write(self, parameters: Parameters) -> None:
        """The only writer's."""
        flips = int(self._flips[0]) + 1
        self._halves[flips % 2] = parameters.block
        self._versions[flips % 2] = parameters.version
        fence()
        self._flips[0] = flips

    def read(self) -> Parameters:
        """The newest, copied into this process."""
        while (flips := int(self._flips[0])) != self._read_flips:
            self._latest.block[:] = self._halves[flips % 2]
            self._latest = Parameters(int(self._versions[flips % 2]), self._latest.block)
            self._read_flips = flips
            fence()
        return self._latest


_fence = threading.Lock()


def fence() -> None:
    """Memory operations before it are seen before those after it, also by processors that reorder (ARM)."""
    for _ in range(2):  # a release followed by an acquire is what may not be crossed
        with _fence:
            pass


def anonymous_memory(nbytes: int) -> int:
    """A descriptor of memory without a name: it is gone when the last process that has it is gone."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("pronk")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, nbytes)
    return descriptor


def map_memory(descriptor: int) -> mmap.mmap:
    """The whole of it, readable and writable."""
    return mmap.mmap(descriptor, 0)


def slot_views(memory: mmap.mmap, layout: UnrollLayout, slots: int) -> list[Unroll]:
    """One unroll per slot."""
    whole = memoryview(memory)
    return [layout.view(whole[slot * layout.nbytes : (slot + 1) * layout.nbytes]) for slot in range(slots)]


def receive(connection: Any) -> bytes:
    """Some slot numbers, or nothing when the other side is gone."""
    try:
        return connection.recv(256)
    except ConnectionError:
        return b""
