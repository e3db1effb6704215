"""The gateway: a gRPC server that copies unrolls of actors on other machines into shared memory.

    actor ==[ one stream ]==> Session --copies into a free slot, validates--> slot number ==> learner

It is a process of its own on the learner's machine, so that a hostile client can cost the learner at most its remote
actors. Memory is bounded: an actor has a few credits, one per unroll, and gets one back when the learner has freed an
unroll. A client that breaks the protocol is refused with the reason; the others are not affected.
"""

from __future__ import annotations

import asyncio
import heapq
import socket
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import grpc

from pronk.processes.messages import ActorJoined, ActorLeft, Listening, Message
from pronk.transport.base import Closed
from pronk.transport.codecs import DTYPES, shrink
from pronk.transport.door import Door
from pronk.transport.frames import METHOD, TOKEN, Kind, pack
from pronk.transport.free_numbers import FreeNumbers
from pronk.transport.gateway_log import GatewayLog
from pronk.transport.gateway_requests import GatewayRequests
from pronk.transport.gateway_rules import Rules, bind, most_idle, server_options
from pronk.transport.memory import ParameterExchange, Slots, map_memory
from pronk.transport.security import same_token
from pronk.transport.session import Refused, Session
from pronk.transport.shared_memory import Ticket
from pronk.transport.slot_socket import FINISHED, SlotSocket
from pronk.transport.validation import Magnitudes
from pronk.types import Parameters

LOOK_SECONDS = 0.25  # between two checks of the connections
LOOKING = 0.05  # share of the time that checks may take: with thousands of connections one takes long
STOP_SECONDS = 2.0  # for actors to receive STOP at the end of the run
UNROLLS_AT_ONCE = 8  # before other streams get their turn
MOST_READERS = 64  # clients that only read parameters


class Gateway:
    """Sessions on one side, one socket to the learner on the other."""

    def __init__(
        self,
        rules: Rules,
        ticket: Ticket,
        log: GatewayLog,
        send: Callable[[Message], None],
        requests: GatewayRequests | None = None,
    ) -> None:
        """`requests` reach the inference server; None if actors choose their actions themselves."""
        self.rules, self.log, self._send, self.requests = rules, log, send, requests
        self.slots = Slots(map_memory(ticket.unrolls), rules.layout)
        self._exchange = ParameterExchange(map_memory(ticket.parameters), rules.parameters_nbytes)
        self._learner = SlotSocket(socket.socket(fileno=ticket.socket))
        # None is free only while the learner holds unrolls of actors that left and rejoined.
        self.free_slots = FreeNumbers(ticket.free)
        self.magnitudes = Magnitudes()
        self._owners: dict[int, Session] = {}
        self._sessions: set[Session] = set()
        self._admitted = 0  # actors so far
        self._indexes = list(range(rules.first_index, rules.first_index + rules.max_actors))
        self._lives: dict[int, int] = {}
        self._frame: tuple[Parameters | None, bytes] = (None, b"")
        self._paced: deque[asyncio.Future[None]] = deque()
        self._over = asyncio.Event()
        self._door: Door  # set as soon as the port is known
        self.finished = False  # whether the run has ended, so that actors need not wait for a restart

    async def serve(self, address: str, own_address: str | None = None) -> None:
        """Listen until the learner closes its socket; for its own actors also on `own_address`, without TLS."""
        asyncio.get_running_loop().add_reader(self._learner, self._read_learner)
        if self.requests is not None:
            self.requests.start()
        server = grpc.aio.server(options=server_options(self.rules))
        service, _, method = METHOD.strip("/").partition("/")
        handler = grpc.stream_stream_rpc_method_handler(self._serve_stream)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        port = bind(server, address, self.rules.credentials)
        own_port = server.add_insecure_port(own_address) if own_address else None
        self._door = Door(port if self.rules.open else 0, most_idle(self.rules), self.log, self._useful_callers)
        await server.start()
        watching = asyncio.create_task(self._watch())
        own = f"{own_address.rpartition(':')[0]}:{own_port}" if own_address else None
        self._send(Listening(f"{address.rpartition(':')[0]}:{port}", own))
        try:
            await self._over.wait()
            for session in self._sessions:
                session.stop()
        finally:
            watching.cancel()
            asyncio.get_running_loop().remove_reader(self._learner)
            asyncio.get_running_loop().remove_writer(self._learner)
            await server.stop(STOP_SECONDS if self.finished else 0.0)
            self._learner.close()
            if self.requests is not None:
                self.requests.close()

    async def _watch(self) -> None:
        took = 0.0
        while True:
            await asyncio.sleep(max(LOOK_SECONDS, took / LOOKING))
            began = time.monotonic()
            self._door.look()
            took = time.monotonic() - began

    def _useful_callers(self) -> set[str]:
        return {session.caller for session in self._sessions if session.playing or session.reads}

    async def _serve_stream(self, _: Any, context: Any) -> None:
        """Serve one stream. An error in it does not affect others."""
        caller, session = context.peer(), None
        may_enter = self._door.opened(caller)
        try:
            if not may_enter:
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls from this address")
            session = Session(self, context, caller, self._authenticate(context))
            await session.run()
        except Refused as refusal:
            self.log.refused(caller.rpartition(":")[0], refusal.who, refusal.reason)
            await context.abort(refusal.code, refusal.reason)
        except asyncio.CancelledError:  # gRPC cancels the handler when the other side is gone
            return
        finally:
            self._door.closed(caller, useful=session is not None and session.useful)

    def _authenticate(self, context: Any) -> bool:
        """Return whether it is one of the learner's own actors. Raises `Refused` for an unknown client."""
        token = dict(context.invocation_metadata() or ()).get(TOKEN)
        if token is not None and same_token(token, self.rules.inner_token):
            return True
        encrypted = bool(context.auth_context().get("transport_security_type") == [b"ssl"])
        if not self.rules.open or encrypted != self.rules.credentials.tls:
            raise Refused(grpc.StatusCode.UNAUTHENTICATED, "only the learner's own actors may join here")
        wanted = self.rules.credentials.token
        if wanted is not None and token is None:
            raise Refused(grpc.StatusCode.UNAUTHENTICATED, "the learner requires a token, and none was sent")
        if wanted is not None and not same_token(token, wanted):
            raise Refused(grpc.StatusCode.UNAUTHENTICATED, "the token is not the learner's")
        return False

    def admit(self, session: Session, reserved: dict[str, int] | None) -> tuple[int, int]:
        """Return a number for a new actor, and how often that number was used before."""
        idle = self._idle_place() if reserved is None and not self._indexes else None
        if idle is not None:
            heapq.heappush(self._indexes, idle.give_up_place())
        if reserved is None and not self._indexes:
            raise Refused(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"the learner has its {self.rules.max_actors} actors already (gateway.max_actors)",
            )
        self._admitted += 1
        session.number = self._admitted
        self._sessions.add(session)
        if reserved is not None:
            return int(reserved["actor"]), int(reserved["life"])
        index = heapq.heappop(self._indexes)
        life = self._lives[index] = self._lives.get(index, -1) + 1
        return index, self.rules.life * 1_000_000 + life

    def _idle_place(self) -> Session | None:
        """Return a session that has a number but does not play: the oldest one, of the address with most of these.

        So a client that sends HELLO a thousand times, and nothing more, takes the numbers of its own calls, not of
        other addresses.
        """
        idle = [one for one in self._sessions if one.index >= self.rules.first_index and not one.playing]
        by_address = Counter(one.peer for one in idle)
        return min(idle, key=lambda one: (-by_address[one.peer], one.number), default=None)

    def admit_reader(self, session: Session) -> None:
        """Let in a client that only reads parameters."""
        if sum(one.reads for one in self._sessions) >= MOST_READERS:
            raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, f"the learner has its {MOST_READERS} readers already")
        self._sessions.add(session)
        self.log.write(f"a reader joins: {session.name}")

    def joined(self, session: Session) -> None:
        """Report that this actor plays from now on."""
        self.log.write(f"actor {session.index} joins: {session.name}")
        self._send(ActorJoined(session.index, session.name, self._count_players()))

    def left(self, session: Session, why: str) -> None:
        """Free its number, if it has one. What it sent stays."""
        if session.reads and session in self._sessions:
            self.log.write(f"a reader leaves: {session.name}; {why}")
        self._sessions.discard(session)
        if session.index >= self.rules.first_index:
            heapq.heappush(self._indexes, session.index)
        if session.playing:
            session.playing = False
            self.log.write(f"actor {session.index} leaves: {session.name}; {why}")
            self._send(ActorLeft(session.index, self._count_players(), session.removed))

    def _count_players(self) -> int:
        players = sum(session.playing for session in self._sessions)
        if self.requests is not None:
            self.requests.set_players(players)
        return players

    @property
    def version(self) -> int:
        """Version that the learner published last."""
        return self._exchange.version

    def parameters_frame(self, version: int) -> bytes | None:
        """Return the newest parameters as a frame, encoded once for all actors; None if they are of this `version`."""
        parameters = self._exchange.read()
        if parameters.version == version:
            return None
        if parameters is not self._frame[0]:
            body = shrink(parameters.block, self.rules.parameters_dtype)
            encoding = DTYPES.index(self.rules.parameters_dtype)
            self._frame = parameters, pack(Kind.PARAMETERS, body, parameters.version, encoding=encoding)
        return self._frame[1]

    async def turn(self) -> None:
        """Wait for a turn to read the next frame.

        A few sessions have it at a time. gRPC accepts one new stream per iteration of asyncio's loop, so without turns
        an actor that joins would wait until the unrolls of hundreds of others have been read.
        """
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._paced:
            asyncio.get_running_loop().call_soon(self._let_some_read)
        self._paced.append(waiter)
        await waiter

    def _let_some_read(self) -> None:
        for _ in range(min(UNROLLS_AT_ONCE, len(self._paced))):
            waiter = self._paced.popleft()
            if not waiter.done():
                waiter.set_result(None)
        if self._paced:
            asyncio.get_running_loop().call_soon(self._let_some_read)

    def deliver(self, slot: int, session: Session) -> None:
        """Send a filled slot to the learner."""
        self._owners[slot] = session
        self._learner.put(slot, session.index)
        self._write_learner()

    def _write_learner(self) -> None:
        """Send which slots are filled, now or when there is room. It may take minutes until a busy learner reads."""
        loop = asyncio.get_running_loop()
        try:
            if self._learner.flush():
                loop.remove_writer(self._learner)
            else:
                loop.add_writer(self._learner, self._write_learner)
        except Closed:
            self._over.set()

    def _read_learner(self) -> None:
        """Read which slots the learner has freed, or that it has ended."""
        try:
            records = self._learner.receive()
        except Closed:
            self._over.set()
            return
        for slot, _ in records:
            if slot == FINISHED:
                self.finished = True
                continue
            self.free_slots.give_back(slot)
            owner = self._owners.pop(slot, None)
            if owner in self._sessions:  # it may have left since
                owner.grant()
