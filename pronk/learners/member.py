"""What learner 0 and the others share: where they find one another, and how gradients are added up."""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from typing import Any

import torch
from torch import Tensor

from pronk.learners.base import Left, Share
from pronk.learners.collective import Collective, collective
from pronk.learners.line import Message
from pronk.learners.place import Place
from pronk.metrics import Experience
from pronk.returns import Column, Episode
from pronk.types import UserError

KEY = "pronk"  # under which learner 0 leaves the port and the token of its lines in the store
POLL_SECONDS = 0.05  # how often a learner that waits for others looks after itself
MENTION_SECONDS = 10.0  # a wait so long is worth a word, and then one twice as long
JOIN_SECONDS = 900.0  # for all learners to be started
LAST_WORDS_SECONDS = 3.0  # when a sum has failed: to hear who is gone


class Member:
    """One of several learners. Leaving the block hangs up."""

    def __init__(self, place: Place, store: Any) -> None:
        self.rank, self.count = place.rank, place.count
        self.reduction = "mean"  # of the loss
        self._store = store
        self._stack = contextlib.ExitStack()
        self._collective: Collective | None = None

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._stack.close()

    def _connect(self, backend: str, own_host: str, tensors: list[Tensor]) -> None:
        """Set up the sums, and make everybody's tensors equal."""
        arguments = (backend, self._store, self.rank, self.count, own_host, tensors[0].device)
        try:
            self._collective = self._stack.enter_context(collective(*arguments))
            with torch.no_grad():
                self._collective.copy(tensors)
        except RuntimeError as error:
            raise self._explain(error) from None

    def add_up(self, gradients: Tensor, mine: Share, whole: Share) -> dict[str, float]:
        """See `Group`. Nothing is added where something is broken: the update will say so, to everybody."""
        if not whole.is_finite:
            return whole.report
        assert self._collective is not None, "begun"
        weight = mine.valid / whole.valid if self.reduction == "mean" and whole.valid else 1.0
        try:
            norm = self._collective.add_up(gradients, weight)
        except RuntimeError as error:
            raise self._explain(error) from None
        return whole.report | {"gradient_norm": norm}

    def _explain(self, error: RuntimeError) -> Left:
        raise NotImplementedError


def plain(share: Share) -> Message:
    """For a line."""
    return share._asdict()


def unplain(message: Message) -> Share:
    """From a line, where every tuple has become a list."""
    experience = Experience(*message["experience"])
    experience = experience._replace(
        columns=[Column(*column) for column in experience.columns],
        episodes=[Episode(*episode) for episode in experience.episodes],
    )
    return Share(message["version"], message["valid"], message["report"], experience, tuple(message["broken"]))


def device_of(tensors: list[Tensor]) -> tuple[str, str]:
    """Which device of which machine this learner computes on."""
    return socket.gethostname(), str(tensors[0].device)


def brief(error: Exception) -> str:
    """The first line of what torch has to say."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def listen(host: str, port: int) -> socket.socket:
    """At this address of the machine; at all of them, where others know it by an address that is not its own."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        try:
            return socket.create_server((host, port), family=family)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            return socket.create_server(("", port))
    except OSError as error:
        raise UserError(f"learners.address: learner 0 cannot listen at {host}:{port}: {error.strerror}") from None


class Patience:
    """Says what a long wait is for, and gives up after a very long one."""

    def __init__(self, limit: float = float("inf")) -> None:
        self._began, self._next, self._limit = time.monotonic(), MENTION_SECONDS, limit

    def is_at_its_end(self) -> bool:
        """Whether it is time to give up."""
        return time.monotonic() - self._began > self._limit

    def mention(self) -> str | None:
        """` for 10 s`, when it is worth a word."""
        waited = time.monotonic() - self._began
        if waited < self._next:
            return None
        self._next *= 2
        return f" for {waited:.0f} s"
