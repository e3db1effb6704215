"""The gateway: a gRPC server that fills slots of shared memory with what actors of other machines send.

    actor ==[ one stream ]==> Session --copies into a free slot, examines--> number of the slot ==> learner

It is a process of its own on the learner's machine, so that nothing a stranger does to it can cost the learner more
than its actors. Memory is bounded: an actor has a few credits, each good for one unroll, and gets one back when the
learner is done with an unroll of its. What does not fit is told why and dropped; nobody else notices.
"""

from __future__ import annotations

import asyncio
import heapq
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc

from pronk.layout import UnrollLayout
from pronk.processes.messages import ActorJoined, ActorLeft, Listening, Message
from pronk.transport.codecs import DTYPES, shrink
from pronk.transport.frames import HEADER, MAX_JSON_BYTES, METHOD, TOKEN, Kind, pack, stream_options
from pronk.transport.memory import ParameterExchange, Slots, map_memory
from pronk.transport.notes import Notes
from pronk.transport.security import Pass, same_token
from pronk.transport.session import Refused, Session
from pronk.transport.shared_memory import FINISHED, RECORD, Ticket, receive
from pronk.types import Parameters

HANDSHAKE_SECONDS = 10.0  # for a connection to become a conversation
IDLE_SECONDS = 30.0  # after which a connection without a conversation is closed
SPARE_CONNECTIONS = 2048  # besides those of actors: half-open ones must not keep an actor out
FAREWELL_SECONDS = 2.0  # for actors to hear that the run has ended
UNROLLS_AT_ONCE = 8  # between two looks at everything else


@dataclass(frozen=True)
class Rules:
    """All that the gateway has to know of the run."""

    layout: UnrollLayout
    parameters_nbytes: int
    slots: int
    max_actors: int
    first_index: int
    """Actors are numbered from here; the learner's own have the numbers before."""
    life: int
    """How often the gateway has been started before."""
    welcome: dict[str, Any]
    """What every actor is told."""
    parameters_dtype: str
    timeout_seconds: float
    keepalive_seconds: float
    shown: Pass
    inner_token: str
    """Of the learner's own actors, which may say who they are."""
    open: bool = True
    """To others than the learner's own actors."""


class Gateway:
    """Sessions on one side, one channel to the learner on the other."""

    def __init__(self, rules: Rules, ticket: Ticket, notes: Notes, tell: Callable[[Message], None]) -> None:
        self.rules, self.notes, self._tell = rules, notes, tell
        self.slots = Slots(map_memory(ticket.unrolls), rules.layout)
        self._exchange = ParameterExchange(map_memory(ticket.parameters), rules.parameters_nbytes)
        self._learner = socket.socket(fileno=ticket.socket)
        self._free: list[int] = []  # the last freed is used next, so that memory in use stays small
        self._owners: dict[int, Session] = {}
        self._queue: list[asyncio.Future[int]] = []  # sessions that wait for a slot
        self._sessions: set[Session] = set()
        self._indexes = list(range(rules.first_index, rules.first_index + rules.max_actors))
        self._lives: dict[int, int] = {}
        self._frame: tuple[Parameters | None, bytes] = (None, b"")
        self._paced: deque[asyncio.Future[None]] = deque()
        self._over = asyncio.Event()
        self.finished = False  # whether the run has reached its end, so that nobody need wait for the learner's return

    async def serve(self, address: str, own_address: str | None = None) -> None:
        """Listen until the learner hangs up; for its own actors, where needed, also in plain text on this machine."""
        asyncio.get_running_loop().add_reader(self._learner, self._hear)
        server = grpc.aio.server(options=server_options(self.rules))
        service, _, method = METHOD.strip("/").partition("/")
        handler = grpc.stream_stream_rpc_method_handler(self._converse)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        port = bind(server, address, self.rules.shown)
        own_port = server.add_insecure_port(own_address) if own_address else None
        await server.start()
        own = f"{own_address.rpartition(':')[0]}:{own_port}" if own_address else None
        self._tell(Listening(f"{address.rpartition(':')[0]}:{port}", own))
        try:
            await self._over.wait()
            for session in self._sessions:
                session.stop()
        finally:
            asyncio.get_running_loop().remove_reader(self._learner)
            await server.stop(FAREWELL_SECONDS if self.finished else 0.0)
            self._learner.close()

    async def _converse(self, _: Any, context: Any) -> None:
        """One stream. Whatever goes wrong in it ends here."""
        peer = context.peer().rpartition(":")[0]
        try:
            session = Session(self, context, peer, self._authenticate(context))
            await session.converse()
        except Refused as refusal:
            self.notes.refused(peer, refusal.who, refusal.reason)
            await context.abort(refusal.code, refusal.reason)
        except asyncio.CancelledError:  # gRPC's way to say that the other side is gone
            return

    def _authenticate(self, context: Any) -> bool:
        """Whether it is one of the learner's own; raises for a stranger."""
        shown = dict(context.invocation_metadata() or ()).get(TOKEN)
        if shown is not None and same_token(shown, self.rules.inner_token):
            return True
        encrypted = bool(context.auth_context().get("transport_security_type") == [b"ssl"])
        if not self.rules.open or encrypted != self.rules.shown.tls:
            raise Refused(grpc.StatusCode.UNAUTHENTICATED, "only the learner's own actors may come this way")
        wanted = self.rules.shown.token
        if wanted is not None and shown is None:
            raise Refused(grpc.StatusCode.UNAUTHENTICATED, "the learner wants a token, and none was shown")
        if wanted is not None and not same_token(shown, wanted):
            raise Refused(grpc.StatusCode.UNAUTHENTICATED, "the token is not the learner's")
        return False

    def admit(self, session: Session, reserved: dict[str, int] | None) -> tuple[int, int]:
        """A number for a new actor, and which of that number's lives it is."""
        if reserved is None and not self._indexes:
            raise Refused(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"the learner has its {self.rules.max_actors} actors already (gateway.max_actors)",
            )
        self._sessions.add(session)
        if reserved is not None:
            return int(reserved["actor"]), int(reserved["life"])
        index = heapq.heappop(self._indexes)
        life = self._lives[index] = self._lives.get(index, -1) + 1
        return index, self.rules.life * 1_000_000 + life

    def joined(self, session: Session) -> None:
        """It plays from now on."""
        self.notes.write(f"actor {session.index} joins: {session.name}")
        self._tell(ActorJoined(session.index, session.name, self._playing()))

    def left(self, session: Session, why: str) -> None:
        """Its number is free again. What it sent stays."""
        self._sessions.discard(session)
        if session.index >= self.rules.first_index:
            heapq.heappush(self._indexes, session.index)
        if session.playing:
            session.playing = False
            self.notes.write(f"actor {session.index} leaves: {session.name}; {why}")
            self._tell(ActorLeft(session.index, self._playing()))

    def _playing(self) -> int:
        return sum(session.playing for session in self._sessions)

    @property
    def version(self) -> int:
        """That the learner published last."""
        return self._exchange.version

    def parameters_frame(self, version: int) -> bytes | None:
        """The newest parameters as they travel, made once for everybody; None if this is the newest version."""
        parameters = self._exchange.read()
        if parameters.version == version:
            return None
        if parameters is not self._frame[0]:
            body = shrink(parameters.block, self.rules.parameters_dtype)
            encoding = DTYPES.index(self.rules.parameters_dtype)
            self._frame = parameters, pack(Kind.PARAMETERS, body, parameters.version, encoding=encoding)
        return self._frame[1]

    async def free_slot(self) -> int:
        """Waits only where actors have gone and come back while the learner still has what they had sent."""
        if self._free:
            return self._free.pop()
        place: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._queue.append(place)
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # it came too late
                self.give_back(place.result())
            raise

    async def turn(self) -> None:
        """Wait for one's turn to read on. Only a few have it at a time, so that who joins need not wait until hundreds
        who have something to send have been read: gRPC accepts one stream each time round asyncio's loop."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._paced:
            asyncio.get_running_loop().call_soon(self._let_some_read)
        self._paced.append(place)
        await place

    def _let_some_read(self) -> None:
        for _ in range(min(UNROLLS_AT_ONCE, len(self._paced))):
            place = self._paced.popleft()
            if not place.done():
                place.set_result(None)
        if self._paced:
            asyncio.get_running_loop().call_soon(self._let_some_read)

    def give_back(self, slot: int) -> None:
        """A slot that nothing was sent in, or that the learner is done with."""
        while self._queue:
            place = self._queue.pop(0)
            if not place.done():
                place.set_result(slot)
                return
        self._free.append(slot)

    def deliver(self, slot: int, session: Session) -> None:
        """The slot is the learner's until it gives it back."""
        self._owners[slot] = session
        try:
            self._learner.sendall(RECORD.pack(slot, session.index))
        except OSError:
            self._over.set()

    def _hear(self) -> None:
        """Slots that the learner is done with, or its end."""
        records = receive(self._learner)
        if not records:
            self._over.set()
        for slot, _ in records:
            if slot == FINISHED:
                self.finished = True
                continue
            self.give_back(slot)
            owner = self._owners.pop(slot, None)
            if owner in self._sessions:  # not if it has left meanwhile
                owner.grant()


def bind(server: Any, address: str, shown: Pass) -> int:
    """Add the port; the number that it got."""
    if shown.certificate is None:
        return server.add_insecure_port(address)
    credentials = grpc.ssl_server_credentials(
        [(shown.private_key, shown.certificate)], shown.authority, require_client_auth=shown.authority is not None
    )
    return server.add_secure_port(address, credentials)


def server_options(rules: Rules) -> list[tuple[str, int]]:
    """Limits on everything that a stranger could use up."""
    return [
        *stream_options(rules.keepalive_seconds),
        ("grpc.so_reuseport", 0),  # two learners on one port would each get half of the actors
        ("grpc.max_receive_message_length", max(MAX_JSON_BYTES, HEADER.size + rules.layout.nbytes)),
        ("grpc.max_concurrent_streams", 2),
        ("grpc.server_max_unrequested_time_in_server", 600),  # hundreds may join at once
        ("grpc.max_allowed_incoming_connections", rules.max_actors + SPARE_CONNECTIONS),
        ("grpc.server_handshake_timeout_ms", int(1000 * HANDSHAKE_SECONDS)),
        ("grpc.max_connection_idle_ms", int(1000 * IDLE_SECONDS)),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
        ("grpc.http2.max_ping_strikes", 0),
    ]
