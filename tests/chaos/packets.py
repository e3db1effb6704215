"""Faults of single packets between a learner and its actors, which are in network namespaces of their own."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

from chaos_run import COLUMNS, LIMIT
from link import ADDRESSES, Link, NoLink
from network import TRANSPORT, joined, recovered
from trials import Result, guarded

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
    """So many faults, of one run. Training must go on while one lasts, unless all is lost, and in any case after it."""
    try:
        link = Link(chance.randrange(1 << 32))
    except NoLink as reason:
        print(f"faults of single packets are left out: {reason}")
        return
    kinds = [list(KINDS)[number % len(KINDS)] for number in range(count)]
    results = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(link)
        learner = stack.enter_context(
            joined(
                *(folder, count, lambda address: address),
                settings=("gateway.insecure=true",),
                options=("--insecure",),
                within=(link.within(0), link.within(1)),
                address=f"{ADDRESSES[0]}:0",
            )
        )
        for kind in kinds:

            def trial(kind: str = kind) -> Result:
                link.set(**KINDS[kind])
                began = time.monotonic()
                try:
                    if 1.0 in KINDS[kind].values():
                        time.sleep(SILENCE)
                    else:
                        learner.wait_for_steps(100 * COLUMNS, LIMIT)
                        time.sleep(max(0.0, began + SECONDS - time.monotonic()))
                finally:
                    counts = link.set()
                assert all(counts[fault] for fault in KINDS[kind]), f"too few packets for the fault: {counts}"
                return recovered(kind, learner)

            results.append(guarded(kind, TRANSPORT, trial))
    yield from results
