"""A bad network on the loopback: a proxy between actors and their learner that delays, stalls and cuts."""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from chaos_run import COLUMNS, LIMIT, RUN, check_counters, check_end, lost_in
from cluster import Actor, Learner
from once_each import REPORT
from trials import IN_FLIGHT, LEARNT, Result, guarded

TRANSPORT = "gRPC, other machines"


class Proxy:
    """Forwards connections. A `with` block; `delay`, `stalled` and `refuses` may be changed at any time."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.delay, self.stalled, self.refuses = 0.0, False, False
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Close every connection, in the middle of whatever it carries."""
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
            self._open.clear()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                if self.refuses:
                    client.close()
                    continue
                server = socket.create_connection(self._target)
                with self._lock:
                    self._open |= {client, server}
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 14):
                while self.stalled:
                    time.sleep(0.02)
                time.sleep(self.delay)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


def delayed(proxy: Proxy, chance: random.Random) -> None:
    proxy.delay = chance.uniform(0.05, 0.2)
    time.sleep(3.0)
    proxy.delay = 0.0


def stalled(proxy: Proxy, chance: random.Random) -> None:
    proxy.stalled = True
    time.sleep(chance.uniform(1.0, 3.0))
    proxy.stalled = False


def cut(proxy: Proxy, chance: random.Random) -> None:
    proxy.cut()


def partitioned(proxy: Proxy, chance: random.Random) -> None:
    proxy.refuses = True
    proxy.cut()
    time.sleep(chance.uniform(1.0, 4.0))
    proxy.refuses = False


KINDS: dict[str, Callable[[Proxy, random.Random], None]] = {
    "network: every packet is late": delayed,
    "network: nothing arrives for seconds": stalled,
    "network: connections cut in the middle of a message": cut,
    "network: partition": partitioned,
}


@contextlib.contextmanager
def joined(
    folder: Path,
    faults: int,
    join: Callable[[str], str],
    settings: tuple[str, ...] = (),
    options: tuple[str, ...] = (),
    within: tuple[tuple[str, ...], tuple[str, ...]] = ((), ()),
    **learner: str,
) -> Iterator[Learner]:
    """A learner that two actors have joined. When the block is left, it must have learnt, and lost no more than it may.

    Args:
        folder: for its files.
        faults: that will be injected.
        join: returns the address that the actors are given, from the learner's.
        settings: of the learner.
        options: of the actors.
        within: what the commands of learner and actors begin with.
        learner: more arguments of `Learner`.
    """
    report = folder / "lost"
    with contextlib.ExitStack() as stack:
        more = {"within": within[0], REPORT: str(report), **learner}
        run = stack.enter_context(Learner(folder / "run", *RUN, "actors.count=0", *settings, **more))
        address = join(run.wait_until_it_listens())
        for number in range(2):
            stack.enter_context(Actor(folder / f"actor-{number}", address, *options, within=within[1]))
        run.wait_for_steps(20 * COLUMNS, LIMIT)
        yield run
        run.wait_until(lambda: run.metrics()[-1]["episode_return"] >= LEARNT, "that it learns", LIMIT)
        run.send(signal.SIGINT)
        assert run.wait(LIMIT) == 130
        run.assert_nothing_left()
        check_end(run.path)
    lost = lost_in(report)
    assert lost <= faults * IN_FLIGHT, f"{lost} columns were lost"


def recovered(kind: str, learner: Learner) -> Result:
    """Wait until it trains as before a fault that has just been undone."""
    began = time.monotonic()
    learner.wait_for_steps(100 * COLUMNS, LIMIT)
    check_counters(learner.metrics())
    return Result(kind, TRANSPORT, "survived", time.monotonic() - began)


def network(count: int, folder: Path, chance: random.Random) -> Iterator[Result]:
    """Faults of the network between a learner and two actors that joined it."""
    kinds = [list(KINDS)[number % len(KINDS)] for number in range(count)]
    results = []
    with contextlib.ExitStack() as stack:

        def through(address: str) -> str:
            nonlocal proxy
            proxy = stack.enter_context(Proxy(address))
            return proxy.address

        proxy: Proxy
        learner = stack.enter_context(joined(folder, count, through))
        for kind in kinds:

            def trial(kind: str = kind) -> Result:
                KINDS[kind](proxy, chance)
                return recovered(kind, learner)

            results.append(guarded(kind, TRANSPORT, trial))
    yield from results
