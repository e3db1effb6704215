"""The interface between the training loop and whatever runs a learner's actors, and the table of implementations."""

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
from pronk.types import Parameters, PlainMlp


@dataclass(frozen=True)
class ActorSetup:
    """Everything that is needed to start a learner's actors."""

    config: ResolvedConfig
    layout: UnrollLayout
    parameters: Parameters
    """The first ones to act with."""
    mlp: PlainMlp | None
    """The network, if actors need no torch to compute it."""
    logs: Path
    generation: int
    """Environment steps trained so far: a resumed run draws new random numbers."""
    interrupts: Interrupts
    say: Callable[[str], None]
    """Shows the user a line."""


Watch = Callable[[], None]
"""Restarts actors that died or hang; raises when a restart would not help (`processes/supervisor.py`). Called often."""

# For each transport a function ActorSetup -> context manager of (port, watch). Leaving it ends every actor.
TABLE = {
    "local": "pronk.actors.serial:running_actors",
    "shared_memory": "pronk.actors.processes:running_actors",
    "grpc": "pronk.actors.gateway:running_actors",
}


def running_actors(setup: ActorSetup) -> AbstractContextManager[tuple[LearnerPort, Watch]]:
    """Start the actors of a learner; yields the port to them, and the function that watches them."""
    name = "grpc" if setup.config.has_gateway else setup.config.transport.name
    return find("transport", name, TABLE)(setup)
