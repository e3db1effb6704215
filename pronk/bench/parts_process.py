"""What a process of `pronk bench` and `pronk plan` runs, one for each core: it measures a part when it is asked to."""

from __future__ import annotations

import contextlib
from typing import Any

from pronk.processes.channel import Channel
from pronk.processes.messages import MeasurePart, PartMeasured


def main(job: dict[str, Any], channel: Channel) -> None:
    """Measure parts until the channel is closed. With `whole` in the job, these are whole actors and updates."""
    import torch

    from pronk.bench.parts import Parts
    from pronk.bench.whole_parts import WholeParts
    from pronk.config import ResolvedConfig
    from pronk.processes.failures import user_code
    from pronk.processes.freed_memory import keep_freed_memory
    from pronk.processes.messages import Alive

    torch.set_num_threads(1)  # all cores are measured at once, each with its own process
    keep_freed_memory()
    config = ResolvedConfig.from_yaml(job["config"])
    if not job["whole"]:
        config = config.replace({"learner.threads": 1})
    parts: Parts | WholeParts
    with user_code("the environment"), contextlib.ExitStack() as stack:
        parts = stack.enter_context(contextlib.closing(WholeParts(config) if job["whole"] else Parts(config)))
        channel.send(Alive())
        for message in channel:
            assert isinstance(message, MeasurePart)
            channel.send(PartMeasured(parts.rate(message.part, message.seconds)))
