"""The actor's end of central inference over gRPC; `gateway_requests.py` is the other."""

from __future__ import annotations

from typing import Self

import numpy as np

from pronk.transport.block_frame import BlockFrame
from pronk.transport.frames import InvalidFrame, Kind
from pronk.transport.grpc_actor import Connection
from pronk.transport.mailboxes import RequestLayouts
from pronk.transport.validation import InvalidUnroll, validate_arrays
from pronk.types import Array, Tree, map_tree


class GrpcRequests:
    """Sends observations to the learner's inference server, which acts on them together with those of other actors.

    It keeps the state of the network's core, and sends it along. So a request that was lost with its connection, or
    with the gateway, is made again over the next one.
    """

    def __init__(self, connection: Connection) -> None:
        self.attach(connection)

    def attach(self, connection: Connection) -> None:
        """Use this connection from now on."""
        self._connection = connection

    def open(self, layouts: RequestLayouts) -> Self:
        """Set the layouts; call it first."""
        self._frame = BlockFrame(Kind.ACT, layouts.request, self._connection.welcome["compression"])
        self._request, self._answer = layouts.request, layouts.answer
        self.state: Tree = map_tree(lambda spec: np.zeros(spec.shape, spec.dtype), layouts.answer.specs["state"])
        """[N, ...] the core's state after the last answer."""
        return self

    @property
    def version(self) -> int:
        """A version of the parameters that later requests are answered with, or with newer ones."""
        return self._connection.version

    def ask(self, observation: Tree, first: Array) -> np.ndarray:
        """Return `Output.policy` [N, P] for N observations. Raises `Closed`.

        Raises ValueError for values that the gateway would refuse, such as a NaN. They would be the same over the next
        connection, so the actor would join and be refused for ever.
        """
        request = self._frame.values
        map_tree(np.copyto, request["observation"], observation)
        np.copyto(request["first"], first)
        map_tree(np.copyto, request["state"], self.state)
        try:
            validate_arrays(request, self._request.specs)
        except InvalidUnroll as error:
            raise ValueError(f"cannot request actions: {error}") from None
        self._connection.send(self._frame.packed())
        frame = self._connection.answer()
        if frame.kind is not Kind.ANSWER or frame.body.nbytes != self._answer.nbytes:
            raise InvalidFrame(f"{frame.kind.name} of {frame.body.nbytes:,} bytes came where an answer was expected")
        answer = self._answer.view(bytearray(frame.body))  # a copy of its own
        self.state = answer["state"]
        return answer["policy"]

    def close(self) -> None:
        """Do nothing: the connection belongs to the actor's port."""
