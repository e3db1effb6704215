"""Every message that processes send one another: dataclasses of plain values, each sent as one line of JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import Any, dataclass_transform


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Message:
    """Base of all messages. Every subclass is made a frozen dataclass; its name is the kind of message on the wire."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


# ---- to the child


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


class Evaluate(Message):
    """To the evaluator: play with this checkpoint."""

    path: str
    checkpoint: str
    """Name of the file that was saved; `path` is a second name of it."""
    urgent: bool = False
    """Training waits for this one: it has ended, or confirms its goal."""


class FilmClip(Message):
    """To the filmer: film an episode with this checkpoint."""

    path: str
    folder: str
    name: str
    """Of the clip, without its suffix."""


class MeasurePart(Message):
    """To a process of `pronk bench`: call this part for so long."""

    part: str
    seconds: float


# ---- from the child


class Alive(Message):
    """A sign of progress."""


class Failed(Message):
    """The child cannot continue."""

    cause: str
    """The user's own traceback, or one line."""
    mistake: bool = False
    """Of the user's input: trying again would not help."""


class Listening(Message):
    """The gateway accepts actors."""

    address: str
    own_address: str | None = None
    """For the learner's own actors, where that is another address."""


class ActorJoined(Message):
    """An actor plays through the gateway."""

    actor: int
    name: str
    playing: int
    """Actors that play through the gateway now."""


class ActorLeft(Message):
    """An actor no longer plays through the gateway."""

    actor: int
    playing: int
    removed: str | None = None
    """The impossible value in its unroll, if it was removed for that."""


class Probed(Message):
    """The spec of an environment."""

    spec: dict[str, Any]
    """An `EnvSpec` as plain data."""


class Served(Message):
    """What an inference server has done since it was started."""

    batches: int
    observations: int


class PartMeasured(Message):
    """How fast the part was, in steps per second."""

    rate: float


class Evaluated(Message):
    """An evaluation is done."""

    line: dict[str, Any]
    """As in eval.jsonl."""


class ClipFilmed(Message):
    """A clip is complete."""

    path: str


# ---- between `pronk launch` or a Ray driver and a process on another machine (cluster/)


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


class Stop(Message):
    """To a process runner: let the process save its work and end."""


class RunnerReady(Message):
    """A process runner waits for its command."""

    free_port: int
    cores: int
    host: str | None = None
    """Name at which other machines reach this one, if the runner knows it."""
    label: str | None = None
    """What users call the machine, if the runner knows it."""


class Started(Message):
    """The process runs."""

    shared: bool
    """Whether both machines have the same run directory."""


class Joined(Message):
    """This actor plays for its learner."""


class Output(Message):
    """A line that the process printed."""

    line: str


class FileChunk(Message):
    """A part of a file in the run directory."""

    path: str
    offset: int
    data: str
    """In base64."""
    appended: bool
    """It follows what was sent before; else it is part of a new version of the file."""
    last: bool


class FileRemoved(Message):
    """A file in the run directory is gone."""

    path: str


class FilesPresent(Message):
    """All files that were in the run directory at the first scan."""

    paths: list[str]


class Exited(Message):
    """The process has ended. The runner's last message."""

    code: int
    """As `subprocess.Popen.returncode`: negative for a signal."""


class RunnerLost(Message):
    """The connection to the runner is lost. Never sent: made where the connection ended."""

    reason: str


# ---- between learner 0 and the others


class JoinAt(Message):
    """Left by learner 0 in the store where learners find one another: the port of its channel."""

    port: int
    token: str = field(repr=False)


class Hello(Message):
    """To learner 0: the first message of another learner."""

    rank: int
    token: str = field(repr=False)
    version: str
    """Of Pronk."""


class Welcome(Message):
    """From learner 0: what is trained."""

    config: str
    """YAML."""
    run: str
    """The run directory on learner 0's machine."""
    reduction: str
    """Of the loss."""


class Regroup(Message):
    """From learner 0: the group forms again. Leave the present one and answer with `Ready`."""


class Ready(Message):
    """To learner 0: the learner is built, on this device of this machine, and waits for `Begin`.

    Also sent without being asked for, when the connection between the learners broke.
    """

    host: str
    device: str


class Begin(Message):
    """From learner 0: connect, and continue from this state."""

    state: dict[str, Any]
    backend: str
    """Of torch.distributed."""
    formation: int
    """The number of this attempt to form the group, from 0. Failed attempts count, too."""
    ranks: list[int]
    """Of the learners that are part of it, in the order of the all-reduce."""


class Contributed(Message):
    """To learner 0: the gradient is ready. From learner 0: every gradient is ready; add them up."""

    contribution: list[Any]
    """The fields of a `learners.base.Contribution`; from learner 0, of the merged one."""


class Decided(Message):
    """From learner 0: what it decided for all."""

    value: bool


class Notice(Message):
    """A line for the user, who watches learner 0."""

    text: str


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
    kind = kinds.get(str(plain.pop("kind", None))) if isinstance(plain, dict) else None
    if kind is None or not {one.name for one in fields(kind)} >= plain.keys():  # type: ignore[arg-type]
        raise ValueError("not a message")
    try:
        return kind(**plain)
    except TypeError as error:  # a field is missing
        raise ValueError(str(error)) from None
