"""The program that an actor process runs: `python -m pronk.launch.actor_process`, its job on standard input."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from typing import Any

from pronk.failures import own_traceback
from pronk.lifeline import die_with_parent

MOST_TOLD = 60_000  # bytes: a pipe holds 64 KiB without a reader


def main() -> None:
    """Play until the learner is gone. A failure is told to whoever started this process."""
    job = json.load(sys.stdin)
    die_with_parent(job["parent"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    sys.path[:] = job["path"]
    print(f"{time.strftime('%F %T')} actor {job['actor']} starts (life {job['life']}, pid {os.getpid()})", flush=True)
    try:
        play(job)
    except Exception as error:
        traceback.print_exc()
        with contextlib.suppress(OSError):
            os.write(job["failure_pipe"], own_traceback(error).encode()[-MOST_TOLD:])
        sys.exit(1)
    print(f"{time.strftime('%F %T')} actor {job['actor']} ends: the learner is gone", flush=True)


def play(job: dict[str, Any]) -> None:
    """Build the actor from the job and run it."""
    import torch

    from pronk import plain_yaml
    from pronk.actor import make_actor
    from pronk.config import validate
    from pronk.layout import UnrollLayout
    from pronk.transport.shared_memory import SharedMemoryActorPort, Ticket

    config = validate(plain_yaml.parse(job["config"]))
    torch.set_num_threads(config.actors.threads)
    ticket = Ticket(**job["ticket"])

    def port(layout: UnrollLayout, nbytes: int) -> SharedMemoryActorPort:
        return SharedMemoryActorPort(ticket, layout, nbytes)

    with make_actor(config, port, job["actor"], job["life"], job["generation"]) as actor:
        actor.run()


if __name__ == "__main__":
    main()
