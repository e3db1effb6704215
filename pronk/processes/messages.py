"""Every message that processes send one another: dataclasses of plain values, each one line of JSON on its way."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
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
class Served(Message):
    """What a server of actions has done in this life."""

    batches: int
    observations: int


@dataclass(frozen=True)
class Evaluated(Message):
    """An evaluation is done."""

    line: dict[str, Any]
    """As in eval.jsonl."""


# ---- between `pronk launch` or a Ray driver and a process on another machine (cluster/)


@dataclass(frozen=True)
class RunCommand(Message):
    """To a process runner: start a `pronk` command."""

    arguments: list[str]
    environment: dict[str, str] = field(default_factory=dict, repr=False)
    files: dict[str, str] = field(default_factory=dict, repr=False)
    """Name -> content, for a private folder."""
    run: str | None = None
    """The run directory there, whose changes are sent back."""
    marker: str | None = None
    """A file beside the run directory. If it exists there, both machines have the same disk."""
    resume_arguments: list[str] | None = None
    """For a restart: arguments to use if the run directory has a checkpoint. One without is removed."""


@dataclass(frozen=True)
class Stop(Message):
    """To a process runner: let the process save its work and end."""


@dataclass(frozen=True)
class RunnerReady(Message):
    """A process runner waits for its command."""

    free_port: int
    cores: int
    host: str | None = None
    """Name at which other machines reach this one, if the runner knows it."""
    label: str | None = None
    """What users call the machine, if the runner knows it."""


@dataclass(frozen=True)
class Started(Message):
    """The process runs."""

    pid: int
    shared: bool
    """Whether both machines have the same run directory."""


@dataclass(frozen=True)
class Joined(Message):
    """This actor plays for its learner."""

    actor: int


@dataclass(frozen=True)
class Output(Message):
    """A line that the process printed."""

    line: str


@dataclass(frozen=True)
class FileChunk(Message):
    """A part of a file in the run directory."""

    path: str
    offset: int
    data: str
    """In base64."""
    appended: bool
    """It follows what was sent before; else it is part of a new version of the file."""
    last: bool


@dataclass(frozen=True)
class FileRemoved(Message):
    """A file in the run directory is gone."""

    path: str


@dataclass(frozen=True)
class FilesPresent(Message):
    """All files that were in the run directory at the first scan."""

    paths: list[str]


@dataclass(frozen=True)
class Exited(Message):
    """The process has ended. The runner's last message."""

    code: int
    """As `subprocess.Popen.returncode`: negative for a signal."""


@dataclass(frozen=True)
class RunnerLost(Message):
    """The connection to the runner is lost. Made on this side."""

    reason: str


# ---- between learner 0 and the others


@dataclass(frozen=True)
class JoinAt(Message):
    """Left by learner 0 in the store where learners find one another: the port of its channel."""

    port: int
    token: str = field(repr=False)


@dataclass(frozen=True)
class Hello(Message):
    """To learner 0: the first message of another learner."""

    rank: int
    token: str = field(repr=False)
    version: str
    """Of Pronk."""


@dataclass(frozen=True)
class Welcome(Message):
    """From learner 0: what is trained."""

    config: str
    """YAML."""
    run: str
    """The run directory on learner 0's machine."""
    reduction: str
    """Of the loss."""


@dataclass(frozen=True)
class Ready(Message):
    """To learner 0: the learner is built, on this device of this machine."""

    host: str
    device: str


@dataclass(frozen=True)
class Begin(Message):
    """From learner 0: connect, and continue from this state."""

    state: dict[str, Any]
    backend: str
    """Of torch.distributed."""


@dataclass(frozen=True)
class Contributed(Message):
    """To learner 0: the gradient is ready. The fields of a `learners.base.Contribution`."""

    contribution: list[Any]


@dataclass(frozen=True)
class Combined(Message):
    """From learner 0: every gradient is ready; add them up. The merged contribution."""

    contribution: list[Any]


@dataclass(frozen=True)
class Notice(Message):
    """A line for the user, who watches learner 0."""

    text: str


@dataclass(frozen=True)
class Leaving(Message):
    """Both ways: this learner ends, and so does the run."""

    outcome: str
    message: str | None = None


def encode(message: Message) -> bytes:
    """Return one line of JSON."""
    return json.dumps({"kind": type(message).__name__, **vars(message)}).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Return the message of one line. Raises ValueError if it is not a message."""
    plain = json.loads(line)
    kinds = {kind.__name__: kind for kind in Message.__subclasses__()}
    kind = kinds.get(plain.pop("kind", None)) if isinstance(plain, dict) else None
    if kind is None or not {one.name for one in fields(kind)} >= plain.keys():  # type: ignore[arg-type]
        raise ValueError("not a message")
    try:
        return kind(**plain)
    except TypeError as error:  # a field is missing
        raise ValueError(str(error)) from None
