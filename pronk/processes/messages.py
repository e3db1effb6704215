"""Every message between a process and the one that supervises it. Each is a dataclass of plain values, sent as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any


class Message:
    """Base of all messages. A subclass is a frozen dataclass; its name is the kind of message on the wire."""


# ---- to the child


@dataclass(frozen=True)
class Run(Message):
    """The first message to every child: what to run."""

    name: str
    """What users call it, such as `actor 3`."""
    program: str
    """A module with `main(job, channel)`."""
    job: dict[str, Any]
    life: int
    """How many processes of this child were started before."""
    parent: int
    """Process id."""


@dataclass(frozen=True)
class Evaluate(Message):
    """To the evaluator: play with this checkpoint."""

    path: str
    checkpoint: str
    """Name of the file that was saved; `path` is a second name of it."""


# ---- from the child


@dataclass(frozen=True)
class Alive(Message):
    """A sign of progress."""


@dataclass(frozen=True)
class Failed(Message):
    """The child cannot continue."""

    cause: str
    """The user's own traceback, or one line."""
    mistake: bool = False
    """Of the user's input: trying again would not help."""


@dataclass(frozen=True)
class Listening(Message):
    """The gateway accepts actors."""

    address: str
    own_address: str | None = None
    """For the learner's own actors, where that is another address."""


@dataclass(frozen=True)
class ActorJoined(Message):
    """An actor plays through the gateway."""

    actor: int
    name: str
    playing: int
    """Actors that play through the gateway now."""


@dataclass(frozen=True)
class ActorLeft(Message):
    """An actor no longer plays through the gateway."""

    actor: int
    playing: int


@dataclass(frozen=True)
class Evaluated(Message):
    """An evaluation is done."""

    line: dict[str, Any]
    """As in eval.jsonl."""


def encode(message: Message) -> bytes:
    """Return one line of JSON."""
    return json.dumps({"kind": type(message).__name__, **asdict(message)}).encode() + b"\n"  # type: ignore[call-overload]


def decode(line: bytes) -> Message:
    """Return the message of one line. Raises ValueError if it is not a message."""
    plain = json.loads(line)
    kinds = {kind.__name__: kind for kind in Message.__subclasses__()}
    kind = kinds.get(plain.pop("kind", None)) if isinstance(plain, dict) else None
    if kind is None or not {field.name for field in fields(kind)} >= plain.keys():  # type: ignore[arg-type]
        raise ValueError("not a message")
    try:
        return kind(**plain)
    except TypeError as error:  # a field is missing
        raise ValueError(str(error)) from None
