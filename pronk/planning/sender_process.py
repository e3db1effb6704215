"""What `pronk plan` runs to load a gateway: an actor's port that sends empty unrolls as fast as it may."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from pronk.processes.channel import Channel
from pronk.processes.messages import Alive, MeasurePart, PartMeasured


def main(job: dict[str, Any], channel: Channel) -> None:
    """Measure until the channel is closed.

    `pull` is replied to with requests for parameters per second, `send` with unrolls per second of processor time.
    """
    from pronk.actors.remote_actor import KEEPALIVE_SECONDS
    from pronk.layout import UnrollLayout
    from pronk.processes.freed_memory import keep_freed_memory
    from pronk.transport.grpc_actor import Connection, GrpcActorPort
    from pronk.transport.security import Credentials

    keep_freed_memory()
    connection = Connection(job["address"], Credentials(job["token"]), KEEPALIVE_SECONDS, {"actor": 0, "life": 0})
    welcome = connection.welcome
    port = GrpcActorPort(connection, UnrollLayout.from_plain(welcome["layout"]), welcome["parameters_nbytes"])

    def pull(seconds: float) -> float:
        began, pulls = time.perf_counter(), 0
        while (spent := time.perf_counter() - began) < seconds or not pulls:
            port.parameters()
            pulls += 1
        return pulls / spent

    def send(seconds: float) -> float:
        began, used, sent = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - began < seconds or not sent:
            with port.unroll() as unroll:
                unroll.version[:] = port.parameters().version
                unroll.episode_return[...] = np.nan
            sent += 1
        return sent / max(1e-9, time.process_time() - used)

    channel.send(Alive())
    for message in channel:
        assert isinstance(message, MeasurePart)
        channel.send(PartMeasured({"pull": pull, "send": send}[message.part](message.seconds)))
    connection.close("measured")
