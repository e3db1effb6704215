"""The client's end of a stream to the gateway.

`Connection` is one stream, until either side ends it or the network fails. `GrpcActorPort` is the actor's port,
`GrpcReader` that of a client which only reads parameters, such as an evaluator. Both outlive connections: `attach`
replaces one that was lost.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np

from pronk.layout import UnrollLayout
from pronk.transport.base import Closed
from pronk.transport.block_frame import BlockFrame
from pronk.transport.codecs import DTYPES, grow
from pronk.transport.frames import (
    METHOD,
    PROTOCOL,
    TOKEN,
    Kind,
    pack,
    pack_json,
    stream_options,
    unpack,
    unpack_json,
)
from pronk.transport.security import Credentials
from pronk.types import Parameters, Unroll, UserError

WELCOME_SECONDS = 20.0  # for the learner to reply to HELLO
LEAVE_SECONDS = 1.0  # for LEAVE to arrive
QUIET_SECONDS = 60.0  # without credit, before `on_quiet` is called
READS = {"reads": True}  # in the HELLO of a client that only reads parameters


class LearnerUnavailable(Exception):  # noqa: N818 - not an error: the actor tries again
    """No learner can be reached now; there may be one later."""


class Connection:
    """One stream. A thread reads it, and wakes callers that wait for a frame."""

    def __init__(
        self, address: str, credentials: Credentials, keepalive_seconds: float, hello: dict[str, Any] | None = None
    ) -> None:
        self.on_hang: Callable[[], None] = lambda: None
        self.on_quiet: Callable[[], None] = lambda: None
        self.limit = 0
        self.version = -1  # that the learner had published, when the gateway last said so
        self.finished = False
        self._ended: str | None = None
        self._mistake = False
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._channel = make_channel(address, credentials, keepalive_seconds)
        metadata = [(TOKEN, credentials.token)] if credentials.token else None
        self._call = self._channel.stream_stream(METHOD, None, None)(iter(self._outgoing.get, None), metadata=metadata)
        name = f"{socket.gethostname()}:{os.getpid()}"
        self.send(pack_json(Kind.HELLO, {"protocol": PROTOCOL, "name": name, **(hello or {})}))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.welcome: dict[str, Any] = unpack_json(self.answer(WELCOME_SECONDS), Kind.WELCOME)
        except Closed:
            self.close()
            raise self.reason() from None

    def send(self, message: bytes) -> None:
        """Queue a frame."""
        self._outgoing.put(message)

    def answer(self, seconds: float | None = None) -> Any:
        """Wait for the next frame that answers a request. Raises `Closed`."""
        try:
            frame = self._answers.get(timeout=seconds)
        except queue.Empty:
            self._end(f"no reply for {seconds:g} s")
            frame = None
        if frame is None:
            self._answers.put(None)  # for the next call
            raise Closed
        return frame

    def wait_for_credit(self, number: int) -> None:
        """Wait until the unroll of this number may be sent; call `on_quiet` once if it takes long. Raises `Closed`."""

        def may_go_on() -> bool:
            return self.limit > number or self._ended is not None

        with self._changed:
            if not self._changed.wait_for(may_go_on, QUIET_SECONDS):
                self.on_quiet()
                self._changed.wait_for(may_go_on)
        if self._ended is not None:
            raise Closed

    @property
    def ended(self) -> bool:
        """Whether the stream has ended."""
        return self._ended is not None

    def close(self, why: str | None = None) -> None:
        """End the stream; with a reason, send LEAVE first."""
        if why is not None and self._ended is None:
            self.send(pack_json(Kind.LEAVE, {"why": why}))
        self._outgoing.put(None)
        if why is not None:
            self._reader.join(LEAVE_SECONDS)
        self._call.cancel()
        self._channel.close()

    def _read(self) -> None:
        try:
            for message in self._call:
                frame = unpack(message)
                if frame.kind is Kind.CREDIT:
                    with self._changed:
                        self.limit, self.version = frame.limit, frame.number
                        self._changed.notify_all()
                elif frame.kind is Kind.STOP:
                    self.finished = True
                    self.send(pack_json(Kind.LEAVE, {"why": "the run has ended"}))
                    self._outgoing.put(None)
                    break
                else:
                    if frame.kind is Kind.ANSWER:
                        self.version = frame.number
                    self._answers.put(frame)
            self._end("the learner closed the connection")
        except grpc.RpcError as error:
            self._judge(error.code(), error.details() or "")
        except Exception as error:
            self._end(f"{type(error).__name__}: {error}")

    def _judge(self, code: Any, details: str) -> None:
        codes = grpc.StatusCode
        self._mistake = code in (codes.UNAUTHENTICATED, codes.FAILED_PRECONDITION, codes.UNIMPLEMENTED) or (
            code is codes.UNAVAILABLE and "handshake failed" in details.lower()
        )
        self._end(describe_failure(details) or code.name)
        if code is codes.DEADLINE_EXCEEDED:
            self.on_hang()

    def _end(self, why: str) -> None:
        with self._changed:
            self._ended = self._ended or why
            self._changed.notify_all()
        self._answers.put(None)

    def reason(self) -> LearnerUnavailable | UserError:
        """Return why it ended: a UserError if trying again would not help."""
        return (UserError if self._mistake else LearnerUnavailable)(self._ended or "the connection was closed")


class GrpcReader:
    """See `ParameterReader`. The connection is an actor's, or one whose HELLO has READS."""

    def __init__(self, connection: Connection, parameters_nbytes: int) -> None:
        """`parameters_nbytes` is the size of the network's block here; WELCOME has the learner's."""
        self._latest = Parameters(-1, np.zeros(parameters_nbytes, np.uint8))
        self.attach(connection)

    def attach(self, connection: Connection) -> None:
        """Use this connection from now on."""
        self.connection = connection
        self._pulled = False

    def parameters(self) -> Parameters:
        """See `ParameterReader`. Often they were requested already, just before the last unroll was sent."""
        self._pull()
        frame = self.connection.answer()
        self._pulled = False
        if frame.kind is Kind.PARAMETERS:
            grow(frame.body, DTYPES[frame.encoding], self._latest.block)
            self._latest = Parameters(frame.number, self._latest.block)
        return self._latest

    def _pull(self) -> None:
        if not self._pulled:
            self._pulled = True
            self.connection.send(pack(Kind.PULL, number=self._latest.version + 1))


class GrpcActorPort(GrpcReader):
    """See `ActorPort`."""

    def __init__(
        self, connection: Connection, layout: UnrollLayout, parameters_nbytes: int, ahead: bool = True
    ) -> None:
        """With `ahead` it requests parameters when it sends an unroll, before they are needed."""
        self._layout, self._ahead = layout, ahead
        self._frame = BlockFrame(Kind.UNROLL, layout, connection.welcome["compression"])
        self.sent = 0
        super().__init__(connection, parameters_nbytes)

    def attach(self, connection: Connection) -> None:
        """Use this connection from now on."""
        super().attach(connection)
        self._number = 0  # of the next unroll
        connection.send(pack_json(Kind.READY, {"layout": self._layout.digest}))

    @contextlib.contextmanager
    def unroll(self) -> Iterator[Unroll]:
        """See `ActorPort`. Waits for credit."""
        self.connection.wait_for_credit(self._number)
        yield self._frame.values
        if self.connection.ended:
            raise Closed
        message = self._frame.packed(self._number)
        # If parameters are requested before the unroll is sent, they come down while it goes up. But without credit for
        # the next unroll the actor has to wait first, and there will be newer parameters after that.
        if self._ahead and self.connection.limit > self._number + 1:
            self._pull()
        self.connection.send(message)
        self._number += 1
        self.sent += 1


def make_channel(address: str, credentials: Credentials, keepalive_seconds: float) -> Any:
    """Return a channel to the gateway that shares its connection with no other."""
    options: list[tuple[str, Any]] = [
        *stream_options(keepalive_seconds),
        ("grpc.max_receive_message_length", -1),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
    ]
    if not credentials.tls:
        return grpc.insecure_channel(address, options)
    if credentials.server_name:
        options.append(("grpc.ssl_target_name_override", credentials.server_name))
    tls = grpc.ssl_channel_credentials(credentials.authority or None, credentials.private_key, credentials.certificate)
    return grpc.secure_channel(address, tls, options)


def describe_failure(details: str) -> str:
    """Translate gRPC's description of a failure into words that tell what to do."""
    details = details.rpartition("last error: ")[2]
    if "handshake failed" in details.lower():
        for sign, meaning in {
            "CERTIFICATE_VERIFY_FAILED": "the learner's certificate has another name (server_name), or is not signed "
            "by an authority that is trusted here (ca)",
            "WRONG_VERSION_NUMBER": "the learner does not use TLS there; on a network that you trust, do without "
            "(insecure)",
            "CERTIFICATE_REQUIRED": "the learner requires a certificate and its private key",
        }.items():
            if sign in details:
                return meaning
    for sign, meaning in {
        "Connection refused": "nothing listens there",
        "Socket closed": "it closed the connection at once; does the learner use TLS (ca)?",
        "Domain name not found": "there is no host of that name",
    }.items():
        if sign in details:
            return meaning
    return details
