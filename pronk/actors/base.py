"""What every launcher looks like to the training loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pronk.config import ResolvedConfig
from pronk.config.named import find
from pronk.layout import UnrollLayout
from pronk.processes.interrupts import Interrupts
from pronk.transport import LearnerPort
from pronk.types import Failure, Parameters


class ActorFailed(Failure):
    """An actor cannot go on. The message has the actor and its own traceback: the root cause."""


@dataclass(frozen=True)
class Play:
    """What a launcher needs to set actors playing."""

    config: ResolvedConfig
    layout: UnrollLayout
    parameters: Parameters
    """To begin with."""
    logs: Path
    generation: int
    """Environment steps trained so far: a resumed run draws new random numbers."""
    interrupts: Interrupts
    say: Callable[[str], None]


Watch = Callable[[], None]
"""Notices actors that died or hang, starts them anew, raises `ActorFailed` when that is no use. Called often."""

# How each transport's actors are run: a function Play -> context manager of (port, watch). Leaving it leaves nothing.
TABLE = {
    "local": "pronk.actors.serial:playing",
    "shared_memory": "pronk.actors.local:playing",
    "grpc": "pronk.actors.gateway:playing",
}


def playing(play: Play) -> AbstractContextManager[tuple[LearnerPort, Watch]]:
    """Actors at play."""
    name = "grpc" if play.config.has_gateway else play.config.transport.name
    return find("transport", name, TABLE)(play)
