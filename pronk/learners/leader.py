"""Learner 0: gathers the others, merges what they tell, says when to go on, and tells all when one leaves."""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from pronk import __version__
from pronk.learners.base import Left, Share
from pronk.learners.collective import backend_for
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
    listen,
    plain,
    unplain,
)
from pronk.learners.place import Place
from pronk.learners.processes import Processes
from pronk.processes.interrupts import Interrupted, Interrupts
from pronk.types import Failure

LOOPBACK = "127.0.0.1"
MOST_STRANGERS = 64  # connections that have not said who they are; the oldest has to go


def open_store(place: Place) -> tuple[Any, Place]:
    """Where learners find one another; and the place with the address that the others need."""
    import torch.distributed as dist

    if not place.port_is_ours:  # torchrun's agent holds it
        store, _, _ = next(iter(dist.rendezvous("env://", place.rank, place.count)))
        return store, place
    listener = listen(place.host or LOOPBACK, place.port)
    place = replace(place, host=place.host or LOOPBACK, port=listener.getsockname()[1])
    store = dist.TCPStore(
        place.host, place.port, place.count, True, wait_for_workers=False, master_listen_fd=listener.detach()
    )
    return store, place


class Leader(Member):
    """Learner 0, with a line to everybody."""

    def __init__(self, place: Place, reduction: str, say: Callable[[str], None]) -> None:
        store, self._place = open_store(place)
        super().__init__(place, store)
        self.reduction = reduction
        self._starts_others, self._say = not place.host, say
        self._listener = listen(self._place.host, 0)
        self._token = secrets.token_hex(16)
        self._processes: Processes | None = None
        self._welcome: Message = {}
        self._logs = Path()
        self._invited = False
        self._lines: dict[int, Line] = {}
        self._notes: dict[int, Message] = {}
        self._left = False

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.leave("failed", f"learner 0 failed: {error}")  # unless another reason was given before
        for line in self._lines.values():
            line.close()
        self._listener.close()
        super().__exit__(kind, error, trace)

    def invite(self, welcome: Message, logs: Path) -> None:
        """What everybody gets to know on arrival, and where those write their logs that are started here."""
        self._welcome, self._logs = welcome | {"reduction": self.reduction}, logs

    def _gather(self, interrupts: Interrupts) -> None:
        """Let the others come, or start them where nobody else does, and wait until everybody has called."""
        self._invited = True
        self._store.set(KEY, json.dumps({"port": self._listener.getsockname()[1], "token": self._token}))
        if self._starts_others:
            self._processes = self._stack.enter_context(Processes(self._place, self._logs))
        strangers: list[Line] = []
        address, patience = f"{self._place.host}:{self._place.port}", Patience(JOIN_SECONDS)
        try:
            while missing := sorted({*range(1, self.count)} - self._lines.keys()):
                if interrupts.requested:
                    raise Interrupted
                for caller in ready([self._listener, *strangers], POLL_SECONDS):
                    if caller is self._listener:
                        strangers.append(Line(self._listener.accept()[0]))
                    else:
                        strangers.remove(caller)
                        self._admit(caller)
                if len(strangers) > MOST_STRANGERS:
                    strangers.pop(0).close()
                self._listen(0.0)
                self._look_after_processes()
                if patience.is_at_its_end():
                    raise Failure(f"learners {missing} have not called at {address} for {JOIN_SECONDS:.0f} s")
                if waited := patience.mention():
                    start = "to start" if self._processes else f"to call at {address}"
                    self._say(f"waiting for learners {missing}{waited} {start}")
        finally:
            for line in strangers:
                line.close()

    def _admit(self, line: Line) -> None:
        """Only those that know the token, and only one of each rank."""
        try:
            hello = next(iter(line.receive()), {})
            if not hmac.compare_digest(str(hello.get("token")), self._token):
                line.close()
                return
            rank = int(hello.get("rank", 0))
            problem = None
            if hello.get("version") != __version__:
                problem = f"learner 0 is Pronk {__version__}, this is {hello.get('version')}"
            elif rank not in range(1, self.count) or rank in self._lines:
                problem = f"learner 0 expects learners 1 to {self.count - 1}, each once, and not this learner {rank}"
            if problem:
                line.send({"kind": "left", "outcome": "failed", "message": problem})
                line.close()
                return
            line.send({"kind": "welcome", **self._welcome})
            self._lines[rank] = line
        except Gone:
            line.close()

    def begin(self, state: dict[str, Any], tensors: list[Tensor], interrupts: Interrupts) -> dict[str, Any]:
        """See `Group`."""
        self._gather(interrupts)
        notes = self._everybody({"device": device_of(tensors)}, interrupts)
        backend = backend_for([note["device"] for note in notes])
        self._tell({"kind": "go", "note": {"state": state, "backend": backend}})
        self._connect(backend, next(iter(self._lines.values())).own_host, tensors)
        return state

    def look(self) -> None:
        """See `Group`."""
        if not self._left:
            self._listen(0.0)

    def meet(self, share: Share, interrupts: Interrupts) -> Share:
        """See `Group`."""
        shares = [unplain(note) for note in self._everybody(plain(share), interrupts)]
        if any(each.version != share.version for each in shares):
            raise Failure(f"the learners have lost step: they are at versions {[each.version for each in shares]}")
        whole = Share.merged(shares, self.reduction)
        self._tell({"kind": "go", "note": plain(whole)})
        return whole

    def leave(self, outcome: str, message: str | None = None) -> None:
        """See `Group`."""
        if not self._left:
            self._left = True
            left = {"kind": "left", "outcome": outcome, "message": message}
            self._tell(left)
            if not self._invited:  # those that are on their way find it in the store
                with contextlib.suppress(RuntimeError):
                    self._store.set(KEY, json.dumps(left))

    def _everybody(self, mine: Message, interrupts: Interrupts) -> list[Message]:
        """What everybody tells, by rank, when the last has told it."""
        patience = Patience()
        self._notes[0] = mine
        while len(self._notes) < self.count:
            if interrupts.requested:
                raise Interrupted
            self._listen(POLL_SECONDS)
            if waited := patience.mention():
                missing = sorted({*range(self.count)} - self._notes.keys())
                self._say(f"waiting for learners {missing}{waited}: their actors are slow, or they hang")
        notes = [self._notes[rank] for rank in range(self.count)]
        self._notes.clear()
        return notes

    def _listen(self, seconds: float) -> None:
        """Take what comes. Raises `Left` when somebody leaves or is gone."""
        by_line = {line: rank for rank, line in self._lines.items()}
        for line in ready(list(by_line), seconds):
            rank = by_line[line]
            try:
                messages = line.receive()
            except Gone as gone:
                raise self._lost(rank, gone) from None
            for message in messages:
                match message.get("kind"):
                    case "note":
                        self._notes[rank] = message["note"]
                    case "say":
                        self._say(f"learner {rank}: {message['text']}")
                    case "left":
                        told = f"learner {rank}: {message['message']}" if message["message"] else None
                        raise Left(message["outcome"], told)

    def _tell(self, message: Message) -> None:
        """Everybody. Who cannot hear it will be found gone."""
        for line in self._lines.values():
            with contextlib.suppress(Gone):
                line.send(message)

    def _lost(self, rank: int, gone: Gone) -> Left:
        how = self._processes.how_it_ended(rank) if self._processes else f"{self._lines[rank].other_host}: {gone}"
        return Left("failed", f"learner {rank} is gone ({how}); --resume goes on from the last checkpoint")

    def _look_after_processes(self) -> None:
        rank = self._processes.ended() if self._processes else None
        if rank is not None and rank not in self._lines:
            assert self._processes is not None
            raise Failure(f"learner {rank} did not start ({self._processes.how_it_ended(rank)})")

    def _explain(self, error: RuntimeError) -> Left:
        """Who is gone has hung up; the others say only that they lost touch too."""
        deadline = time.monotonic() + LAST_WORDS_SECONDS
        while time.monotonic() < deadline:
            for rank, line in self._lines.items():
                try:
                    line.receive()
                except Gone as gone:
                    return self._lost(rank, gone)
            time.sleep(POLL_SECONDS)
        return Left("failed", f"the learners lost touch: {brief(error)}")
