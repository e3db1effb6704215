"""Faults of single packets between a learner and its actors, or another learner, in another network namespace."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from chaos_run import COLUMNS, ENVIRONMENT, LIMIT, RUN, STEPS, UPDATES, ChaosRun, check_counters, check_end
from link import ADDRESSES, Link, NoLink
from network import TRANSPORT, joined, recovered
from once_each import REPORT
from processes import start_pronk
from trials import IN_FLIGHT, LEARNT, Result, guarded

SECONDS = 5.0  # of a fault that training survives, at least
SILENCE = 25.0  # seconds: more than the two times gateway.keepalive_seconds after which a connection counts as lost
KINDS: dict[str, dict[str, float]] = {
    "network: packets lost (5%)": {"loss": 0.05},
    "network: packets lost (25%)": {"loss": 0.25},
    "network: packets out of order": {"reorder": 0.3},
    "network: packets duplicated": {"duplicate": 0.3},
    "network: packets corrupted": {"corrupt": 0.05},
    "network: packets lost, out of order, duplicated and corrupted": {
        **{"loss": 0.05, "reorder": 0.2},
        **{"duplicate": 0.2, "corrupt": 0.02},
    },
    "network: no packet arrives": {"loss": 1.0},
    "network: no packet arrives at the learner": {"loss from 1": 1.0},
    "network: no packet arrives at the actors": {"loss from 0": 1.0},
}


def packets(count: int, folder: Path, chance: random.Random) -> Iterator[Result]:
    """Faults of a run with actors on another machine.

    Training must go on while one lasts, unless nothing arrives, and in any case after it.
    """
    yield from over_link(remote_actors, count, folder, chance)


def learners(count: int, folder: Path, chance: random.Random) -> Iterator[Result]:
    """Faults of a run with a learner on another machine.

    Training must go on while one lasts, without that learner if nothing arrives, and with it afterwards.
    """
    yield from over_link(two_learners, count, folder, chance)


def over_link(
    trials: Callable[[Link, list[str], Path], Iterator[Result]], count: int, folder: Path, chance: random.Random
) -> Iterator[Result]:
    """Yield the results of these trials if this machine allows a link."""
    try:
        link = Link(chance.randrange(1 << 32))
    except NoLink as reason:
        print(f"faults of single packets are left out: {reason}")
        return
    with link:
        yield from trials(link, [list(KINDS)[number % len(KINDS)] for number in range(count)], folder)


@contextlib.contextmanager
def fault(link: Link, kind: str) -> Iterator[None]:
    """Inject a fault while the block lasts."""
    link.set(**KINDS[kind])
    try:
        yield
    finally:
        counts = link.set()
    assert all(counts[fault] for fault in KINDS[kind]), f"too few packets for the fault: {counts}"


def remote_actors(link: Link, kinds: list[str], folder: Path) -> Iterator[Result]:
    """Trials with two actors in the other namespace."""
    results = []
    run = joined(
        *(folder, len(kinds), lambda address: address),
        settings=("gateway.insecure=true",),
        options=("--insecure",),
        within=(link.within(0), link.within(1)),
        address=f"{ADDRESSES[0]}:0",
    )
    with run as learner:
        for kind in kinds:

            def trial(kind: str = kind) -> Result:
                with fault(link, kind):
                    if silences(kind):
                        time.sleep(SILENCE)
                    else:
                        began = time.monotonic()
                        learner.wait_for_steps(100 * COLUMNS, LIMIT)
                        time.sleep(max(0.0, began + SECONDS - time.monotonic()))
                return recovered(kind, learner)

            results.append(guarded(kind, TRANSPORT, trial))
    yield from results


def two_learners(link: Link, kinds: list[str], folder: Path) -> Iterator[Result]:
    """Trials with learner 1 in the other namespace."""
    transport, results = "two learners, two machines", []
    group = ("learners.count=2", f"learners.address={ADDRESSES[0]}:29500")
    with contextlib.ExitStack() as stack:
        further = stack.enter_context(Further(folder, link.within(1), *RUN, *group, "learners.rank=1"))
        path, within = folder / "run", link.within(0)
        run = stack.enter_context(ChaosRun(path, *RUN, *group, "learners.rank=0", learners=2, within=within))

        def wait_for(updates: int, learners: int = 2) -> None:
            goal = run.updates + updates
            what = f"{updates} more updates of {learners} learners"
            run.wait_until(lambda: further.keep() and run.updates >= goal and learning(run) >= learners, what, LIMIT)

        wait_for(2 * UPDATES)
        for kind in kinds:

            def trial(kind: str = kind) -> Result:
                with fault(link, kind):
                    began = time.monotonic()
                    wait_for(2 * UPDATES, 1 if silences(kind) else 2)
                    time.sleep(max(0.0, began + SECONDS - time.monotonic()))
                began = time.monotonic()
                wait_for(2 * UPDATES)
                check_counters(run.metrics(), learners=2)
                return Result(kind, transport, "survived", time.monotonic() - began)

            results.append(guarded(kind, transport, trial))
        run.wait_until(lambda: (run.metrics()[-1]["episode_return"] or 0.0) >= LEARNT, "that it learns", LIMIT)
        run.send(signal.SIGINT)
        assert run.wait(LIMIT) == 130, run.err
        run.assert_nothing_left()
        check_end(run.path, learners=2)
    assert run.lost() <= len(kinds) * IN_FLIGHT, f"{run.lost()} columns were lost"
    yield from results


def silences(kind: str) -> bool:
    """Return whether a fault lets nothing through, in one direction or both."""
    return 1.0 in KINDS[kind].values()


def learning(run: ChaosRun) -> int:
    """Return how many learners made the newest updates."""
    lines = run.metrics()[-2:]
    steps, updates = (lines[-1][name] - lines[0][name] for name in ("env_steps", "updates"))
    return round(2 * steps / (updates * COLUMNS * STEPS)) if updates else 0


class Further:
    """Learner 1, given the same command again whenever it has ended. A `with` block."""

    def __init__(self, folder: Path, within: tuple[str, ...], *arguments: str) -> None:
        self._within, self._arguments = within, arguments
        self._output = open(folder / "learner-1", "wb")  # noqa: SIM115 - closed with the block
        self._more = {REPORT: str(folder / "run.lost"), **ENVIRONMENT}
        self._start()

    def __enter__(self) -> Further:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._output.close()

    def keep(self) -> bool:
        """Start it again if it has ended. Always true, for use in conditions."""
        if self._process.poll() is not None:
            self._start()
        return True

    def _start(self) -> None:
        streams = {"stdout": self._output, "stderr": self._output}
        self._process = start_pronk("train", *self._arguments, within=self._within, **streams, **self._more)
