"""Memory that is shared with the inference server: a client puts requests there and finds the answers.

    client (an actor, or the gateway)                          inference server
    mailbox --observation, first, state, `requested`-->        network(batch of several mailboxes)
            <--policy, next state, `answered`----------
            <====== one socket per client: a byte means "check the mailboxes" ======>

An actor of this machine has one mailbox; the gateway has many, one for each request that it forwards. The learner keeps
both ends of every socket open, so neither side gets an error when the other dies.
"""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass
from typing import Any

import numpy as np

from pronk.layout import ALIGNMENT, Layout, specs_from_plain
from pronk.transport.memory import fence, map_memory
from pronk.types import Array, ArraySpec, EnvSpec, Tree, map_tree

BELL = b"!"
BELLS = 4096  # bytes to receive at once: takes all that wait


class RequestLayouts:
    """The layouts of a request, of its answer and of a mailbox. A request is about the N environments of one actor."""

    def __init__(self, observation: Tree, state: Tree, parameters: int, envs: int) -> None:
        """`observation` and `state` are specs without leading axes; `parameters` is P of `networks.base.Output`."""
        self._arguments = observation, state, parameters, envs
        observations, states = (map_tree(lambda leaf: leaf.batched(envs), tree) for tree in (observation, state))
        first, policy = ArraySpec((envs,), "bool"), ArraySpec((envs, parameters), "float32")
        self.request = Layout({"observation": observations, "first": first, "state": states})
        self.answer = Layout({"policy": policy, "state": states})
        self.mailbox = Layout(
            {"observation": observations, "first": first, "policy": policy, "states": {"0": states, "1": states}}
        )

    @classmethod
    def of(cls, spec: EnvSpec, state: Tree, envs: int) -> RequestLayouts:
        """Return the layouts for an environment and the state of a network's core, both without leading axes."""
        return cls(spec.observation, state, spec.action.parameter_count, envs)

    @classmethod
    def from_plain(cls, plain: tuple[Any, Any, int, int]) -> RequestLayouts:
        """Read back what `plain` returned."""
        observation, state, parameters, envs = plain
        return cls(specs_from_plain(observation), specs_from_plain(state), parameters, envs)

    def plain(self) -> tuple[Any, Any, int, int]:
        """Return plain data, for another process."""
        observation, state, parameters, envs = self._arguments
        return Layout(observation).plain(), Layout(state).plain(), parameters, envs


@dataclass(frozen=True)
class MailboxTicket:
    """What a process needs for its side of some mailboxes: their number and inherited descriptors."""

    memory: int
    mailboxes: int
    socket: int

    @property
    def descriptors(self) -> list[int]:
        """For the process to inherit."""
        return [self.memory, self.socket]


class Mailbox:
    """The memory of one request at a time.

    Requests are numbered. Request k reads the core's state from half k % 2 and writes the next one to the other half.
    So it can be answered a second time, by another server, with the same result.
    """

    def __init__(self, arrays: Tree, requested: Array, answered: Array) -> None:
        self.observation: Tree = arrays["observation"]  # [N, ...]
        self.first: np.ndarray = arrays["first"]  # [N]
        self.policy: np.ndarray = arrays["policy"]  # [N, P]
        self._states = [arrays["states"]["0"], arrays["states"]["1"]]
        self._requested, self._answered = requested, answered

    @property
    def requested(self) -> int:
        """Number of the newest request."""
        return int(self._requested[0])

    @property
    def answered(self) -> int:
        """Number of the request that was answered last."""
        return int(self._answered[0])

    def request(self, number: int) -> None:
        """Mark the observations as complete."""
        fence()
        self._requested[0] = number

    def answer(self, number: int) -> None:
        """Mark the answer as complete."""
        fence()
        self._answered[0] = number

    def state_before(self, number: int) -> Tree:
        """Return views [N, ...] of the core's state that a request starts from."""
        return self._states[number % 2]


class Mailboxes:
    """One side of the mailboxes of a client, and of their socket.

    Views are made on first use, so only mailboxes that are used take memory.
    """

    def __init__(self, ticket: MailboxTicket, layouts: RequestLayouts) -> None:
        self._memory, self._layout = memoryview(map_memory(ticket.memory)), layouts.mailbox
        self._players = np.ndarray((1,), np.int64, self._memory)
        self._numbers = np.ndarray((2, ticket.mailboxes), np.int64, self._memory, offset=ALIGNMENT)  # as in `Mailbox`
        self._views: dict[int, Mailbox] = {}
        self.socket = socket.socket(fileno=ticket.socket)

    @staticmethod
    def nbytes(layouts: RequestLayouts, count: int) -> int:
        """Return how much memory `count` mailboxes need."""
        return header_nbytes(count) + count * layouts.mailbox.nbytes

    def __len__(self) -> int:
        return self._numbers.shape[1]

    def __getitem__(self, index: int) -> Mailbox:
        if index not in self._views:
            start = header_nbytes(len(self)) + index * self._layout.nbytes
            arrays = self._layout.view(self._memory[start : start + self._layout.nbytes])
            self._views[index] = Mailbox(arrays, *self._numbers[:, index : index + 1])
        return self._views[index]

    @property
    def players(self) -> int:
        """How many actors may have a request at the same time. The client sets it; the server reads it."""
        return int(self._players[0])

    @players.setter
    def players(self, count: int) -> None:
        self._players[0] = count

    def unanswered(self) -> list[int]:
        """Return the mailboxes whose newest request has no answer yet, as indices in ascending order."""
        return np.flatnonzero(self._numbers[0] != self._numbers[1]).tolist()

    def ring(self) -> None:
        """Send a byte that wakes the other side. If the buffer is full, it will wake from the bytes in it."""
        with contextlib.suppress(OSError):
            self.socket.send(BELL)

    def drain(self) -> bool:
        """Receive the bells that have come; the socket must not block. Return whether it is still open."""
        try:
            return bool(self.socket.recv(BELLS))
        except BlockingIOError:
            return True
        except OSError:
            return False


def header_nbytes(count: int) -> int:
    """Return the size of `players` and of all numbers, which lie before the first mailbox."""
    return ALIGNMENT + -(-2 * count * 8 // ALIGNMENT) * ALIGNMENT
