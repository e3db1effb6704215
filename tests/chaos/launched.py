"""Faults of a run on other machines: two learners and two actors, over a real sshd on the loopback, or on Ray."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from chaos_run import LIMIT, RUN, check_counters, check_end
from once_each import REPORT
from processes import SUPPORT, Training, descendants_of
from sshd import SSHD, running_sshd
from trials import LEARNT, Result, guarded

import pronk

SETTINGS = tuple(one for one in RUN if not one.startswith("actors.count"))
TREE = f"{Path(pronk.__file__).parents[1]}:{SUPPORT}"


def running(root: int, command: str, rank: str = "") -> list[int]:
    """Processes below `root` that run `pronk COMMAND`, or the learner of a rank."""
    found = []
    for process in descendants_of(root):
        with contextlib.suppress(OSError), open(f"/proc/{process.pid}/cmdline", "rb") as file:
            words = file.read().decode().split("\0")
            wanted = "pronk.cluster.process_runner" in " ".join(words) and command in words
            if wanted and (not rank or f"learners.rank={rank}" in words):
                found.append(process.pid)
    return found


KINDS = {
    "kill -9 of a learner other than 0": ("learner", "1"),
    "kill -9 of an actor": ("actor", ""),
    "kill -9 of learner 0": ("learner", "0"),
}


def over_ssh(count: int, folder: Path, chance: random.Random) -> Iterator[Result]:
    """Kill processes of a run that `pronk launch` has started."""
    if SSHD is None:
        print("no sshd: faults over SSH are left out")
        return
    keys, there = folder / "keys", folder / "there"
    keys.mkdir()
    there.mkdir()
    with running_sshd(keys) as sshd:
        rows = [("learner", "alpha", 1), ("learner", "beta", 1), ("actor", "alpha", 1), ("actor", "beta", 1)]
        lines = [f"{role},{host},{sshd.port},{sshd.user},{sshd.key},,{number}" for role, host, number in rows]
        (folder / "hosts.csv").write_text("\n".join(["role,host,port,user,key file,devices,count", *lines, ""]))
        program = f"env OMP_NUM_THREADS=1 {REPORT}={folder / 'lost'} PYTHONPATH={TREE} {sys.executable} -m pronk"
        where = ("--hosts", str(folder / "hosts.csv"), "--ssh-config", str(sshd.config), "--program", program)
        arguments = (*SETTINGS, *where, "--remote-dir", str(there))
        with Training(folder / "run", *arguments, command="launch", relative=True, fresh=True) as run:
            yield from faults("SSH", count, run, sshd.process.pid, chance)


def over_ray(count: int, folder: Path, chance: random.Random) -> Iterator[Result]:
    """Kill processes of a run on a Ray cluster whose nodes are processes of this machine."""
    if find_spec("ray") is None:
        print("no Ray: faults on it are left out")
        return
    from ray.cluster_utils import Cluster

    os.environ |= {REPORT: str(folder / "lost"), "RAY_worker_niceness": "0"}  # by default Ray's workers run at 15
    for name in ("stamped.py", "once_each.py"):
        shutil.copy(SUPPORT / name, folder)  # where the processes run
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
    try:
        settings = (*SETTINGS, "learners=2", "actors.count=2", "cluster=ray", f"cluster.address={cluster.address}")
        with Training(folder / "run", *settings, relative=True, fresh=True) as run:
            yield from faults("Ray", count, run, os.getpid(), chance)
    finally:
        cluster.shutdown()


def faults(where: str, count: int, run: Training, root: int, chance: random.Random) -> Iterator[Result]:
    """Inject so many faults, then see that the run has learnt and ends. `root`: whose descendants its processes are."""
    results = []

    def more(updates: int) -> None:
        goal = (run.metrics() or [{"updates": 0}])[-1]["updates"] + updates
        run.wait_until(lambda: (run.metrics() or [{"updates": 0}])[-1]["updates"] >= goal, "more updates", 2 * LIMIT)

    more(10)
    for number in range(count):
        kind = list(KINDS)[number % len(KINDS)]

        def trial(kind: str = kind, number: int = number) -> Result:
            run.wait_until(lambda: len(running(root, "learner")) == 2, "both learners", 2 * LIMIT)
            run.wait_until(lambda: running(root, *KINDS[kind]), "whom to kill", 2 * LIMIT)
            began = time.monotonic()
            os.kill(chance.choice(running(root, *KINDS[kind])), signal.SIGKILL)
            run.wait_until(lambda: run.err.count("ended (killed by SIGKILL)") > number, "that it says so", LIMIT)
            more(20)
            return Result(kind, where, "survived", time.monotonic() - began)

        results.append(guarded(kind, where, trial))

    def end() -> Result:
        run.wait_until(lambda: (run.metrics()[-1]["episode_return"] or 0) >= LEARNT, "that it learns", 2 * LIMIT)
        run.send(signal.SIGINT)
        assert run.wait(LIMIT) == 130, run.err
        run.assert_nothing_left()
        check_end(run.path, learners=2)
        check_counters([line for line in run.metrics() if line["updates"] > 0], learners=2)
        return Result("the run ends", where, "survived")

    results.append(guarded("the run ends", where, end))
    yield from results
