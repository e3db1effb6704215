"""The gateway's side of one client's stream: the state of the protocol, deadlines and credits."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import grpc

from pronk.transport.codecs import InvalidBody, decompress
from pronk.transport.frames import (
    BLOCKS,
    MAX_JSON_BYTES,
    PROTOCOL,
    Frame,
    InvalidFrame,
    Kind,
    pack,
    pack_json,
    unpack,
    unpack_json,
)
from pronk.transport.validation import InvalidUnroll, validate_unroll

if TYPE_CHECKING:
    from pronk.transport.gateway import Gateway
    from pronk.transport.gateway_requests import GatewayRequests

HELLO_SECONDS = 20.0  # for the first frame
WRITE_SECONDS = 60.0  # for the other side to take a frame


class Refused(Exception):  # noqa: N818 - not an error of this process
    """The gateway ends the stream, with a gRPC status and the reason."""

    def __init__(self, code: Any, reason: str, who: str = "") -> None:
        super().__init__(reason)
        self.code, self.reason, self.who = code, reason, who


class StreamClosed(Exception):  # noqa: N818 - not an error
    """The actor ended the stream. The message has its reason."""


class Session:
    """HELLO, WELCOME, READY; then UNROLL (with credit), PULL and ACT in any order; see `frames.py`.

    A client that only reads parameters: HELLO, WELCOME; then PULL.
    """

    def __init__(self, gateway: Gateway, context: Any, caller: str, own: bool) -> None:
        self._gateway, self._context, self.caller, self._own = gateway, context, caller, own
        self.peer = caller.rpartition(":")[0]  # without the port
        self.index, self.name, self.playing = -1, self.peer, False
        self.number = 0  # in the order of admission, from 1
        self.reads = False  # whether it only reads parameters
        self.removed: str | None = None  # the impossible value in its unroll, if it was removed for that
        self._due = 0  # number of its next unroll
        self._limit = self._sent_limit = 0  # unrolls it may send in all, and the last limit that it was sent
        self._asked: int | None = None  # version that it has, if it asked for a newer one
        self._acting = False  # whether it waits for the inference server
        self._answer: bytes | None = None  # of the inference server, to be sent
        self._stopping = False
        self._wake = asyncio.Event()
        self._overdue = "no HELLO"
        self._clock: asyncio.Timeout | None = None
        self._failure: Refused | None = None
        self._task: asyncio.Task[Any] | None = None

    @property
    def useful(self) -> bool:
        """Whether it has brought an unroll, or is one of the learner's own actors."""
        return self._own or self._due > 0

    async def run(self) -> None:
        """Serve the stream until one side ends it. Raises `Refused`."""
        why = "the connection was lost"
        self._task = asyncio.current_task()
        try:
            async with asyncio.timeout(HELLO_SECONDS) as self._clock:
                await self._handshake()
                reader = asyncio.current_task()
                assert reader is not None
                writer = asyncio.create_task(self._write(reader))
                try:
                    await self._read_frames()
                finally:
                    writer.cancel()
        except StreamClosed as end:
            why = str(end)
        except TimeoutError:
            raise self._refusal(grpc.StatusCode.DEADLINE_EXCEEDED, self._overdue) from None
        except (InvalidFrame, InvalidBody, InvalidUnroll) as error:
            self.removed = str(error) if isinstance(error, InvalidUnroll) else None
            raise self._refusal(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
        except asyncio.CancelledError:
            if self._failure is None:
                raise
            raise self._failure from None
        except Refused as refusal:
            why = refusal.reason
            raise
        finally:
            self._gateway.left(self, str(self._failure or why))

    def _refusal(self, code: Any, reason: str) -> Refused:
        self._failure = Refused(code, reason, self.name)
        return self._failure

    async def _handshake(self) -> None:
        """Receive HELLO, send WELCOME, then wait for READY unless the client only reads."""
        gateway, rules = self._gateway, self._gateway.rules
        hello = unpack_json(await self._read(), Kind.HELLO)
        if hello.get("protocol") != PROTOCOL:
            raise self._refusal(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"the learner speaks protocol {PROTOCOL}, the actor {hello.get('protocol')!r:.20}: "
                "install the same version of Pronk on both",
            )
        self.name = f"{str(hello.get('name'))[:80]!r} at {self.peer}"
        if hello.get("reads") is True:
            self.reads = True
            gateway.admit_reader(self)
            await self._context.write(pack_json(Kind.WELCOME, rules.welcome))
            return
        self.index, life = gateway.admit(self, hello if self._own and "actor" in hello else None)
        self._due_within(rules.timeout_seconds, f"not ready after {rules.timeout_seconds:g} s")
        await self._context.write(pack_json(Kind.WELCOME, {**rules.welcome, "actor": self.index, "life": life}))
        ready = unpack_json(await self._read(), Kind.READY, Kind.LEAVE)
        if "why" in ready:
            raise StreamClosed(f"{ready['why']!r:.300}")
        if ready.get("layout") != rules.layout.digest:
            raise self._refusal(
                grpc.StatusCode.FAILED_PRECONDITION,
                "its unrolls have another layout: its environment or network is not the learner's",
            )
        self._limit = rules.slots
        self._wake.set()
        self.playing = True
        gateway.joined(self)

    async def _read_frames(self) -> None:
        self._set_deadline()
        while True:
            frame = await self._read()
            if frame.kind is Kind.UNROLL and not self.reads:
                await self._receive_unroll(frame)
                self._set_deadline()
                await self._gateway.turn()
            elif frame.kind is Kind.PULL:
                self._asked = frame.number - 1
                self._wake.set()
            elif frame.kind is Kind.ACT and self._gateway.requests is not None and not self.reads:
                await self._act(self._gateway.requests, frame)
            else:
                raise StreamClosed(f"{unpack_json(frame, Kind.LEAVE).get('why')!r:.300}")

    async def _read(self) -> Frame:
        message = await self._context.read()
        if message is grpc.aio.EOF:
            raise StreamClosed("it ended without LEAVE: killed, or cut off for a message larger than an unroll")
        frame = unpack(message)
        if frame.kind not in BLOCKS and len(message) > MAX_JSON_BYTES:
            raise InvalidFrame(f"{frame.kind.name} of {len(message):,} bytes")
        return frame

    async def _receive_unroll(self, frame: Frame) -> None:
        """Check an unroll completely, then hand it to the learner."""
        gateway, layout = self._gateway, self._gateway.rules.layout
        if frame.number != self._due:
            raise InvalidFrame(f"unroll number {frame.number} came where {self._due} was expected")
        if self._due >= self._limit:
            raise InvalidFrame(f"unroll number {self._due} came without credit: the limit is {self._limit}")
        if frame.nbytes != layout.nbytes:
            raise InvalidFrame(f"an unroll of {frame.nbytes:,} bytes where {layout.nbytes:,} were expected")
        data = decompress(frame.encoding, frame.body, layout.nbytes)
        slot = await gateway.free_slots.take()
        try:
            gateway.slots.block(slot)[:] = data
            validate_unroll(gateway.slots[slot], layout.specs, gateway.version)
            gateway.magnitudes.check(gateway.slots[slot], self.index)
        except BaseException:
            gateway.free_slots.give_back(slot)
            raise
        self._due += 1
        gateway.deliver(slot, self)

    async def _act(self, requests: GatewayRequests, frame: Frame) -> None:
        """Have observations acted on. The deadline for the next unroll stands still until the server has answered."""
        assert self._clock is not None
        if self._answer is not None:
            raise InvalidFrame("ACT came before the last one's answer was taken")
        now, due = asyncio.get_running_loop().time, self._clock.when()
        left = None if due is None else due - now()
        self._acting = True
        self._set_deadline()
        try:
            self._answer = await requests.answer(frame)
        finally:
            self._acting = False
        self._wake.set()
        if left is None:
            self._set_deadline()
        else:
            self._due_within(left, self._overdue)

    def give_up_place(self) -> int:
        """End the stream of an actor that has sent HELLO but does not play; return its number, which is free now."""
        assert self._task is not None
        index, self.index = self.index, -1
        self._refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "another actor came for its place before it was ready")
        self._task.cancel()
        return index

    def grant(self) -> None:
        """Give a credit back: the learner has freed one of its unrolls."""
        self._limit += 1
        self._wake.set()
        self._set_deadline()

    def stop(self) -> None:
        """Tell the actor that the learner has ended."""
        self._stopping = True
        self._wake.set()

    def _set_deadline(self) -> None:
        """Restart the time limit for the next unroll. Without credit, while it waits for an answer, and for a reader,
        there is no limit.
        """
        if self._due < self._limit and not self._acting:
            seconds = self._gateway.rules.timeout_seconds
            self._due_within(seconds, f"no unroll for {seconds:g} s (actors.timeout_seconds)")
        elif self._clock is not None and not self._clock.expired():
            self._clock.reschedule(None)

    def _due_within(self, seconds: float, otherwise: str) -> None:
        assert self._clock is not None
        self._overdue = otherwise
        if not self._clock.expired():
            self._clock.reschedule(asyncio.get_running_loop().time() + seconds)

    async def _write(self, reader: asyncio.Task[Any]) -> None:
        """Write pending frames, one at a time. A slow reader delays only itself."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while (frame := self._next_frame()) is not None:
                    async with asyncio.timeout(WRITE_SECONDS):
                        await self._context.write(frame)
        except TimeoutError:
            self._refusal(grpc.StatusCode.DEADLINE_EXCEEDED, f"it took no frame for {WRITE_SECONDS:g} s")
            reader.cancel()
        except Exception as error:  # the stream broke, which the reader notices too
            self._refusal(grpc.StatusCode.UNAVAILABLE, f"{type(error).__name__}")
            reader.cancel()

    def _next_frame(self) -> bytes | None:
        if self._answer is not None:
            answer, self._answer = self._answer, None
            return pack(Kind.ANSWER, answer, self._gateway.version)
        if self._asked is not None:
            version, self._asked = self._asked, None
            return self._gateway.parameters_frame(version) or pack(Kind.SAME, number=max(0, version))
        if self._sent_limit != self._limit:
            self._sent_limit = self._limit
            return pack(Kind.CREDIT, number=self._gateway.version, limit=self._limit)
        if self._stopping and self._gateway.finished:
            self._stopping = False
            return pack(Kind.STOP, json.dumps({"why": "the run has ended"}).encode())
        return None
