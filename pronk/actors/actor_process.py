"""What an actor process runs; `local.py` starts it."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import time
import traceback
from typing import Any

from pronk.processes.failures import user_traceback
from pronk.processes.lifeline import die_with_parent

MOST_TOLD = 15_000  # bytes: a pipe holds at least 16 KiB without a reader


def main(job: dict[str, Any]) -> None:
    """Play until the learner is gone. A failure is told to whoever started this process."""
    die_with_parent(job["parent"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    print(f"{time.strftime('%F %T')} actor {job['actor']} starts (life {job['life']}, pid {os.getpid()})", flush=True)
    try:
        play(job)
    except Exception as error:
        traceback.print_exc()
        with contextlib.suppress(OSError):
            os.write(job["failure_pipe"], user_traceback(error).encode()[-MOST_TOLD:])
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)  # not `exit`, which waits for threads that an environment may have left
    print(f"{time.strftime('%F %T')} actor {job['actor']} ends: the learner is gone", flush=True)


def play(job: dict[str, Any]) -> None:
    """Build the actor from the job and run it."""
    if "address" in job["ticket"]:
        return play_over_grpc(job)
    import torch

    from pronk.actor import make_actor
    from pronk.config import ResolvedConfig
    from pronk.layout import UnrollLayout
    from pronk.processes.freed_memory import keep_freed_memory
    from pronk.transport.shared_memory import SharedMemoryActorPort, Ticket
    from pronk.types import UserError

    config = ResolvedConfig.from_yaml(job["config"])
    torch.set_num_threads(config.actors.threads)
    keep_freed_memory()
    ticket = Ticket(**job["ticket"])

    def port(layout: UnrollLayout, nbytes: int) -> SharedMemoryActorPort:
        if layout.digest != job["layout"]:
            raise UserError("the environment or the network is not the one that the run was started with")
        return SharedMemoryActorPort(ticket, layout, nbytes)

    with make_actor(config, port, job["actor"], job["life"], job["generation"]) as actor:
        actor.run()


def play_over_grpc(job: dict[str, Any]) -> None:
    """As an actor of another machine would, but for its number, which is known."""
    from pronk.actors.joining import Joining
    from pronk.transport.security import Pass

    ticket = job["ticket"]
    hello = {"actor": job["actor"], "life": job["life"]}
    Joining(ticket["address"], Pass(ticket["token"]), lambda line: print(line, flush=True), hello=hello).run()
