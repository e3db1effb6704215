"""What an actor process runs; `processes.py` starts it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from pronk.processes.channel import Channel

# An actor that begins to trace imports torch and plays nothing meanwhile. The learner, whose profile begins with one of
# its first lines of metrics, has finished its table by then.
GAP_SECONDS = 3.0


def main(job: dict[str, Any], channel: Channel) -> None:
    """Play until the learner closes the port."""
    if "address" in job["ticket"]:
        play_over_grpc(job)
    else:
        play_over_shared_memory(job)


def play_over_shared_memory(job: dict[str, Any]) -> None:
    """Build the actor from the job and run it."""
    from pronk.actor import make_actor
    from pronk.config import ResolvedConfig
    from pronk.layout import UnrollLayout
    from pronk.processes.freed_memory import keep_freed_memory
    from pronk.processes.parts_of_time import ACTOR
    from pronk.processes.profiling import Profile
    from pronk.processes.threads import limit_threads
    from pronk.transport.shared_memory import SharedMemoryActorPort, Ticket
    from pronk.types import UserError

    config = ResolvedConfig.from_yaml(job["config"])
    keep_freed_memory()
    ticket = Ticket(**job["ticket"])

    def port(layout: UnrollLayout, nbytes: int) -> SharedMemoryActorPort:
        if layout.digest != job["layout"]:
            raise UserError("the environment or the network is not the one that the run was started with")
        return SharedMemoryActorPort(ticket, layout, nbytes)

    with make_actor(config, port, job["actor"], job["life"], job["generation"], job["policy"]) as actor:
        limit_threads(config.actors.threads)
        if job["actor"] == 0 and config.run.profile_seconds:
            seconds, folder = config.run.profile_seconds, Path(job["profile"])
            profile = Profile(folder, "actor-000", ACTOR, actor.timed_methods(), seconds, GAP_SECONDS)
            with contextlib.closing(profile):
                actor.run(profile.tick)
        else:
            actor.run()


def play_over_grpc(job: dict[str, Any]) -> None:
    """Join as an actor of another machine does, but with the number that the learner gave."""
    from pronk.actors.remote_actor import RemoteActor
    from pronk.transport.security import Credentials

    ticket = job["ticket"]
    hello = {"actor": job["actor"], "life": job["life"]}
    RemoteActor(
        ticket["address"], Credentials(ticket["token"]), lambda line: print(line, flush=True), hello=hello
    ).run()
