"""What a process of `pronk bench` runs, one for each core: it measures a part whenever it is asked to."""

from __future__ import annotations

import contextlib
from typing import Any

from pronk.processes.channel import Channel
from pronk.processes.messages import MeasurePart, PartMeasured


def main(job: dict[str, Any], channel: Channel) -> None:
    """Measure parts until the channel is closed."""
    import torch

    from pronk.bench.parts import Parts
    from pronk.config import ResolvedConfig
    from pronk.processes.failures import user_code
    from pronk.processes.freed_memory import keep_freed_memory
    from pronk.processes.messages import Alive

    torch.set_num_threads(1)  # all cores are measured at once, each with its own process
    keep_freed_memory()
    with user_code("the environment"), contextlib.closing(Parts(ResolvedConfig.from_yaml(job["config"]))) as parts:
        channel.send(Alive())
        for message in channel:
            assert isinstance(message, MeasurePart)
            channel.send(PartMeasured(parts.rate(message.part, message.seconds)))
