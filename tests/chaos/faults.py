"""Faults of a running training: each is injected, and undone if it would last."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from chaos_run import ACTOR_LOGS, ChaosRun

SHORT_PAUSE = 3.0  # seconds; less than any timeout
EVERYWHERE = ("shared memory", "gRPC", "two learners")


class Fault(NamedTuple):
    """What is done to a run."""

    kind: str
    where: tuple[str, ...]
    inject: Callable[[ChaosRun, random.Random], None]


def hit(run: ChaosRun, pids: list[int], number: signal.Signals, chance: random.Random) -> int:
    """Send a signal to one of these processes. Returns which."""
    victim = chance.choice(pids)
    os.kill(victim, number)
    return victim


def kill(pattern: str) -> Callable[[ChaosRun, random.Random], None]:
    """SIGKILL for one of the processes with such a log."""
    return lambda run, chance: void(hit(run, run.pids(pattern), signal.SIGKILL, chance))


def void(_: object) -> None:
    """A fault returns nothing."""


def kill_twice(run: ChaosRun, chance: random.Random) -> None:
    """An actor, and its next life while it starts."""
    victim = hit(run, run.actors(), signal.SIGKILL, chance)
    run.wait_until(lambda: victim not in run.actors() and len(run.actors()) > 1, "its next life", 120)
    kill(ACTOR_LOGS)(run, chance)


def kill_all_actors(run: ChaosRun, chance: random.Random) -> None:
    for pid in run.actors():
        os.kill(pid, signal.SIGKILL)


def pause(pattern: str) -> Callable[[ChaosRun, random.Random], None]:
    """SIGSTOP, and SIGCONT soon enough that nobody has to act."""

    def inject(run: ChaosRun, chance: random.Random) -> None:
        victim = hit(run, run.pids(pattern), signal.SIGSTOP, chance)
        time.sleep(chance.uniform(0.5, SHORT_PAUSE))
        os.kill(victim, signal.SIGCONT)

    return inject


def stop(pattern: str) -> Callable[[ChaosRun, random.Random], None]:
    """SIGSTOP for good: the process has to be replaced."""

    def inject(run: ChaosRun, chance: random.Random) -> None:
        victim = hit(run, run.pids(pattern), signal.SIGSTOP, chance)
        run.wait_until(lambda: victim not in run.pids(pattern), "that it is noticed", 240)
        assert "SIGSTOP" in run.err, "named"

    return inject


def pause_the_learner(run: ChaosRun, chance: random.Random) -> None:
    """As a laptop that sleeps: afterwards nobody is to blame for the silence."""
    run.send(signal.SIGSTOP)
    time.sleep(chance.uniform(1.0, 3.0))
    run.send(signal.SIGCONT)


@contextlib.contextmanager
def limited(pid: int, which: int, most: int):
    """A process that may not have more of something, until the block ends."""
    before = resource.prlimit(pid, which)
    resource.prlimit(pid, which, (most, before[1]))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, which, before)


def no_descriptors(run: ChaosRun, chance: random.Random) -> None:
    """The learner can open nothing more while an actor has to be restarted."""
    with limited(run.pid, resource.RLIMIT_NOFILE, len(os.listdir(f"/proc/{run.pid}/fd"))):
        kill(ACTOR_LOGS)(run, chance)
        time.sleep(2.0)


def no_memory(run: ChaosRun, chance: random.Random) -> None:
    """An actor can have no more memory."""
    victim = chance.choice(run.actors())
    with limited(victim, resource.RLIMIT_AS, int(Path(f"/proc/{victim}/statm").read_text().split()[0]) * 4096):
        time.sleep(2.0)


def no_disk(run: ChaosRun, chance: random.Random) -> None:
    """No file of the learner's may grow: metrics, checkpoints, logs, and what it prints into a file."""
    with limited(run.pid, resource.RLIMIT_FSIZE, 1):
        kill(ACTOR_LOGS)(run, chance)
        time.sleep(3.0)


LIVE = [
    Fault("kill -9 of an actor", EVERYWHERE, kill(ACTOR_LOGS)),
    Fault("kill -9 of an actor that is starting", EVERYWHERE, kill_twice),
    Fault("kill -9 of all actors at once", EVERYWHERE, kill_all_actors),
    Fault("kill -9 of the gateway", ("gRPC",), kill("gateway.log")),
    Fault("kill -9 of a learner other than 0", ("two learners",), kill("learner-001.log")),
    Fault("SIGSTOP and SIGCONT of an actor", EVERYWHERE, pause(ACTOR_LOGS)),
    Fault("SIGSTOP and SIGCONT of the gateway", ("gRPC",), pause("gateway.log")),
    Fault("SIGSTOP and SIGCONT of a learner other than 0", ("two learners",), pause("learner-001.log")),
    Fault("SIGSTOP and SIGCONT of the learner", EVERYWHERE, pause_the_learner),
    Fault("SIGSTOP of an actor for good", EVERYWHERE, stop(ACTOR_LOGS)),
    Fault("SIGSTOP of the gateway for good", ("gRPC",), stop("gateway.log")),
    Fault("SIGSTOP of a learner other than 0 for good", ("two learners",), stop("learner-001.log")),
    Fault("no descriptors left, and an actor dies", EVERYWHERE, no_descriptors),
    Fault("no memory left for an actor", EVERYWHERE, no_memory),
    Fault("no room left for files, and an actor dies", EVERYWHERE, no_disk),
]
