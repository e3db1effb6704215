"""The gateway's end of central inference: it puts the requests of actors into mailboxes and collects the answers."""

from __future__ import annotations

import asyncio

import numpy as np

from pronk.transport.codecs import decompress
from pronk.transport.frames import Frame, InvalidFrame
from pronk.transport.free_numbers import FreeNumbers
from pronk.transport.mailboxes import Mailboxes, MailboxTicket, RequestLayouts
from pronk.transport.memory import fence
from pronk.transport.validation import validate_arrays
from pronk.types import map_tree


class GatewayRequests:
    """Forwards requests to the inference server, each in a free mailbox. Nothing of an actor stays in a mailbox.

    A mailbox is free again when its request has been answered, whether or not the actor is still there. So the server
    never writes into a mailbox that has been given to another actor, not even after the gateway was killed.
    """

    def __init__(self, ticket: MailboxTicket, layouts: RequestLayouts) -> None:
        self._mailboxes = Mailboxes(ticket, layouts)
        self._request, self._answer = layouts.request, layouts.answer
        self._reply = bytearray(layouts.answer.nbytes)
        self._reply_arrays = layouts.answer.view(self._reply)
        # Requests of an earlier gateway may be unanswered still: nobody waits for them.
        self._open: dict[int, asyncio.Future[bytes] | None] = dict.fromkeys(self._mailboxes.unanswered())
        # There are as many as actors, so none is free only while those that left have open requests.
        self._free = FreeNumbers(index for index in reversed(range(ticket.mailboxes)) if index not in self._open)

    def start(self) -> None:
        """Collect answers from now on, in the running loop."""
        self._mailboxes.socket.setblocking(False)
        self.set_players(0)
        asyncio.get_running_loop().add_reader(self._mailboxes.socket, self._collect)
        # An earlier gateway may have been killed before it could ring, or after it had received the bell of an answer.
        self._mailboxes.ring()
        self._collect()

    def close(self) -> None:
        """Stop collecting."""
        asyncio.get_running_loop().remove_reader(self._mailboxes.socket)
        self._mailboxes.socket.close()

    def set_players(self, count: int) -> None:
        """Set how many actors may ask."""
        self._mailboxes.players = count

    async def answer(self, frame: Frame) -> bytes:
        """Check a request, and return the body of its answer. Waits while there is no server."""
        if frame.nbytes != self._request.nbytes:
            raise InvalidFrame(f"observations of {frame.nbytes:,} bytes where {self._request.nbytes:,} were expected")
        request = self._request.view(decompress(frame.encoding, frame.body, self._request.nbytes))
        validate_arrays(request, self._request.specs)
        index = await self._free.take()
        mailbox = self._mailboxes[index]
        number = mailbox.requested + 1
        map_tree(np.copyto, mailbox.observation, request["observation"])
        np.copyto(mailbox.first, request["first"])
        map_tree(np.copyto, mailbox.state_before(number), request["state"])
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._open[index] = answer
        mailbox.request(number)
        self._mailboxes.ring()
        return await answer

    def _collect(self) -> None:
        """Hand out the answers that have come."""
        if not self._mailboxes.drain():
            asyncio.get_running_loop().remove_reader(self._mailboxes.socket)  # the learner has ended
        answered = self._open.keys() - self._mailboxes.unanswered()
        fence()
        for index in answered:
            waiting = self._open.pop(index)
            if waiting is not None and not waiting.done():
                waiting.set_result(self._read(index))
            self._free.give_back(index)

    def _read(self, index: int) -> bytes:
        mailbox = self._mailboxes[index]
        np.copyto(self._reply_arrays["policy"], mailbox.policy)
        map_tree(np.copyto, self._reply_arrays["state"], mailbox.state_before(mailbox.answered + 1))
        return bytes(self._reply)
