"""What is simulated, and what comes out: a pipeline with its costs, and a prediction.

actor x A                                                                        learner x L
wait for a slot, read parameters, play --> [ up, gateway ] --> filled --> K unrolls -> M batches -> P passes
        ^------ slot is free (Pacer) <------------------------------------'              | exchange with others
        ^------ parameters [ down ] <------------------------------------- publish <-----'
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple


@dataclass(frozen=True)
class Pipeline:
    """One learner with its actors, and how many such learners there are. Times are in seconds, sizes in bytes."""

    actors: int
    """Of one learner."""
    steps: int
    """Environment steps in an unroll."""
    actor_seconds: float
    """Of one core, for an actor to play an unroll while all cores are busy."""
    update_seconds: float
    """For an update, likewise; or of the learner's own device."""
    slots: int = 2
    unrolls_per_batch: int = 1
    batches_per_unroll: int = 1
    passes: int | Literal["idle"] = 1
    sync_every: int = 1
    learners: int = 1
    one_machine: bool = True
    """Whether all processes are on one machine. Else each learner has a machine, and each actor a core elsewhere."""
    cores: int = 1
    """Of the machine, or of each learner's."""
    threads: int = 1
    """Cores that a learner's update occupies."""
    on_device: bool = False
    """The learner computes on a GPU: it takes nothing from the cores, and the next batch is staged meanwhile."""
    crowding: float = 1.0
    """See `events.cores`."""
    network: bool = False
    """Whether unrolls go through a gateway."""
    bandwidth: float | None = None
    """Bytes per second, in each direction, of a learner's machine. None: no limit."""
    unroll_bytes: int = 0
    parameters_bytes: int = 0
    pull_seconds: float = 0.0
    """From the request for parameters to the reply, apart from the transfer. No core is busy."""
    send_seconds: float = 0.0
    """Of the actor's core, to send an unroll and receive parameters."""
    gateway_seconds: float = 0.0
    """Of a core beside the learner, to receive an unroll and send parameters."""
    exchange_seconds: float = 0.0
    """To agree with the other learners and add up the gradients, per update, apart from the transfer."""

    @property
    def steps_per_update(self) -> float:
        """Of one learner."""
        return self.steps * self.unrolls_per_batch / self.batches_per_unroll


class Prediction(NamedTuple):
    """What the simulation measured, over all learners."""

    steps_per_second: float
    updates_per_second: float
    lag: float
    """Updates between the parameters that acted and those that learn, mean over unrolls."""
    most_lag: int
    learner_waits: float
    """Share of the time."""
    utilisation: dict[str, float]
    """Share of the time that each part is busy: actors, learner, cores, gateway, up, down. Absent if there is none."""
    up: float
    """Bytes per second into one learner's machine; 0 without a network."""
    down: float
