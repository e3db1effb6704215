"""What `pronk plan` runs twice to measure an update of two learners that act as one."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from pronk.processes.channel import Channel
from pronk.processes.messages import Alive, MeasurePart, PartMeasured

LOOPBACK = "127.0.0.1"


def main(job: dict[str, Any], channel: Channel) -> None:
    """Make updates. Learner 0 replies with updates per second, and ends the group; learner 1 follows it."""
    import torch

    from pronk.bench.timing import calls_per_second
    from pronk.bench.whole_parts import WholeParts
    from pronk.config import ResolvedConfig
    from pronk.learners import GroupEnded, LearnerGroup, Rendezvous, Shared, coordinate, participate
    from pronk.processes.freed_memory import keep_freed_memory
    from pronk.processes.interrupts import Interrupts

    config, rank = ResolvedConfig.from_yaml(job["config"]), job["rank"]
    keep_freed_memory()
    rendezvous = Rendezvous(rank, 2, rank, 2, LOOPBACK, job["port"])

    def begin(group: LearnerGroup, parts: WholeParts) -> None:
        learner = parts.learner

        def load(state: dict[str, Any]) -> None:
            learner.version = state["version"]

        shared = Shared(learner.tensors(), lambda: {"version": learner.version}, load)
        group.begin(shared, Interrupts(), contextlib.nullcontext)

    with contextlib.closing(WholeParts(config)) as parts:
        torch.set_num_threads(parts.learner.threads)
        channel.send(Alive())
        if rank:
            with contextlib.suppress(GroupEnded), participate(rendezvous, print) as (participant, _):
                begin(participant, parts)
                while True:
                    parts.update(participant)
            return
        with coordinate(rendezvous, config.loss.reduction, print) as group:
            group.announce("", "", Path())
            begin(group, parts)
            parts.update(group)
            for message in channel:
                assert isinstance(message, MeasurePart)
                channel.send(PartMeasured(calls_per_second(lambda: parts.update(group), message.seconds)))
            group.leave("finished")
