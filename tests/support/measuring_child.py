"""A child process for the tests of bench/workers.py: replies with the rate that its job says, hangs or fails."""

from __future__ import annotations

import time
from typing import Any

from pronk.processes.channel import Channel
from pronk.processes.messages import Alive, MeasurePart, PartMeasured


def main(job: dict[str, Any], channel: Channel) -> None:
    if job.get("fails") == "at the start":
        raise RuntimeError("the belt broke")
    channel.send(Alive())
    if job.get("fails") == "after a while":
        time.sleep(0.3)
        raise RuntimeError("the belt broke")
    for message in channel:
        assert isinstance(message, MeasurePart)
        if not job.get("hangs"):
            channel.send(PartMeasured(job["rate"]))
