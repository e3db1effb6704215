"""A learner other than 0: calls learner 0, gets everything from there, and goes on when it is told to."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from torch import Tensor

from pronk import __version__
from pronk.learners.base import Left, Share
from pronk.learners.line import Gone, Line, Message, ready
from pronk.learners.member import (
    JOIN_SECONDS,
    KEY,
    LAST_WORDS_SECONDS,
    POLL_SECONDS,
    Member,
    Patience,
    brief,
    device_of,
    plain,
    unplain,
)
from pronk.learners.place import Place
from pronk.processes.interrupts import Interrupts
from pronk.types import Failure


def call_store(place: Place, say: Callable[[str], None]) -> Any:
    """Learner 0's store, when learner 0 is up and has left its word there. It may be started minutes later."""
    import torch.distributed as dist

    patience = Patience(JOIN_SECONDS)

    def wait() -> None:
        if patience.is_at_its_end():
            raise Failure(f"learner 0 does not answer at {place.host}:{place.port}")
        if waited := patience.mention():
            say(f"learner {place.rank} has waited for learner 0 at {place.host}:{place.port}{waited}")
        time.sleep(4 * POLL_SECONDS)

    if place.port_is_ours:
        while not answers(place.host, place.port):  # in Python, where Ctrl-C is heard
            wait()
        store = dist.TCPStore(place.host, place.port, place.count, False, wait_for_workers=False)
    else:
        store, _, _ = next(iter(dist.rendezvous("env://", place.rank, place.count)))
    while not store.check([KEY]):
        wait()
    return store


def answers(host: str, port: int) -> bool:
    """Whether somebody listens there."""
    try:
        socket.create_connection((host, port), timeout=5.0).close()
    except OSError:
        return False
    return True


class Follower(Member):
    """A learner with a line to learner 0."""

    def __init__(self, place: Place, say: Callable[[str], None]) -> None:
        """Calls learner 0; `say` gets a word while nobody answers."""
        try:
            store = call_store(place, say)
            word = json.loads(store.get(KEY))
            if word.get("kind") == "left":
                raise Left(word["outcome"], word["message"])
            self._line = Line(socket.create_connection((place.host, word["port"])))
            self._line.send({"kind": "hello", "rank": place.rank, "token": word["token"], "version": __version__})
        except (OSError, RuntimeError, Gone) as error:
            raise Failure(f"learner 0 at {place.host}:{place.port} is gone ({brief(error)})") from None
        super().__init__(place, store)
        self._left = False
        self._inbox: deque[Message] = deque()

    def welcome(self) -> Message:
        """What learner 0 has to say to everybody."""
        message = self.wait_for("welcome")
        self.reduction = message["reduction"]
        return message

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.leave("failed", str(error))  # unless another reason was given before
        self._line.close()
        super().__exit__(kind, error, trace)

    def say(self, text: str) -> None:
        """To the user, who watches learner 0."""
        with contextlib.suppress(Gone):
            self._line.send({"kind": "say", "text": text})

    def begin(self, state: dict[str, Any], tensors: list[Tensor], interrupts: Interrupts) -> dict[str, Any]:
        """See `Group`."""
        self._tell({"device": device_of(tensors)})
        start = self.wait_for("go", interrupts)["note"]
        self._connect(start["backend"], self._line.own_host, tensors)
        return start["state"]

    def look(self) -> None:
        """See `Group`."""
        if not self._left:
            self._listen(0.0)

    def meet(self, share: Share, interrupts: Interrupts) -> Share:
        """See `Group`. Learner 0 may have said "go" already, so an interrupt only asks it to end the run."""
        self._tell(plain(share))
        return unplain(self.wait_for("go", interrupts)["note"])

    def leave(self, outcome: str, message: str | None = None) -> None:
        """See `Group`."""
        if not self._left:
            self._left = True
            with contextlib.suppress(Gone):
                self._line.send({"kind": "left", "outcome": outcome, "message": message})

    def wait_for(self, kind: str, interrupts: Interrupts | None = None) -> Message:
        """The next message, which has to be of this kind."""
        self._listen(0.0)
        while not self._inbox:
            if interrupts is not None and interrupts.requested:
                self.leave("interrupted")
            self._listen(POLL_SECONDS)
        message = self._inbox.popleft()
        if message.get("kind") != kind:
            raise Failure(f"learner 0 said {message.get('kind')!r} where {kind!r} was due")
        return message

    def _listen(self, seconds: float) -> None:
        """Take what comes. Raises `Left` when that is the next thing to know: a "go" before it counts."""
        if ready([self._line], seconds):
            try:
                self._inbox.extend(self._line.receive())
            except Gone as gone:
                raise Left("failed", f"learner 0 is gone ({self._line.other_host}: {gone})") from None
        if self._inbox and self._inbox[0].get("kind") == "left":
            raise Left(self._inbox[0]["outcome"], self._inbox[0]["message"])

    def _tell(self, note: Message) -> None:
        with contextlib.suppress(Gone):  # found out when its answer is waited for
            self._line.send({"kind": "note", "note": note})

    def _explain(self, error: RuntimeError) -> Left:
        """Learner 0 knows who is gone."""
        deadline = time.monotonic() + LAST_WORDS_SECONDS
        try:
            while time.monotonic() < deadline:
                self._listen(POLL_SECONDS)
        except Left as left:
            return left
        return Left("failed", f"the learners lost touch: {brief(error)}")
