"""Real processes for tests: `pronk train` in a session of its own, what it started, and whether anything is left."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pronk.layout import UnrollLayout
from pronk.transport.shared_memory import SharedMemoryActorPort, Ticket
from pronk.types import ActionSpec, ArraySpec, EnvSpec, Unroll, leaves, unroll_specs

SUPPORT = Path(__file__).parent
SIZES = ("actors.envs=16", "actors.unroll_length=20", "learner.batch_size=16")
STEPS_PER_UPDATE = 16 * 20


class Process(NamedTuple):
    """A number alone may be given to another process later."""

    pid: int
    started: str


class Life(NamedTuple):
    """One start of an actor, as its log tells it."""

    number: int
    pid: int
    log: str  # what it wrote


class Training:
    """`pronk train`; leaving the block leaves nothing running, whatever happened."""

    def __init__(
        self,
        path: Path,
        *arguments: str,
        command: str = "train",
        within: tuple[str, ...] = (),
        relative: bool = False,
        **environment: str,
    ) -> None:
        """`relative`: it works in the run directory's parent, and is given its bare name."""
        self.path = path
        given = path.name if relative else str(path)
        self._left_before = left_in_shared_memory()
        self._output = path.with_name(path.name + ".out"), path.with_name(path.name + ".err")
        with open(self._output[0], "wb") as out, open(self._output[1], "wb") as err:
            self._process = subprocess.Popen(
                [*within, sys.executable, "-m", "pronk", command, *arguments, "--run-dir", given],
                cwd=path.parent if relative else None,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=os.environ | {"PYTHONPATH": f"{SUPPORT}:{os.environ.get('PYTHONPATH', '')}", **environment},
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._seen: set[Process] = set()

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *_: object) -> None:
        self.descendants()
        self._process.kill()
        self._process.wait()
        for number in (signal.SIGTERM, signal.SIGKILL):  # Python's own helper processes tidy up before they go
            for process in filter(is_running, self._seen):
                os.kill(process.pid, number)
            with contextlib.suppress(AssertionError):
                wait_until(lambda: not any(map(is_running, self._seen)), 2.0, "their end")

    def descendants(self) -> set[Process]:
        """All that it started and that runs now."""
        found = descendants_of(self.pid)
        self._seen |= found
        return found

    def send(self, number: signal.Signals, *, group: bool = False) -> None:
        """A signal; a terminal sends Ctrl-C to the whole group. What runs now is remembered."""
        self.descendants()
        (os.killpg if group else os.kill)(self.pid, number)

    def wait(self, seconds: float = 60.0) -> int:
        """Its exit code. Who runs meanwhile is remembered."""

        def has_ended() -> bool:
            self.descendants()
            return not self.running

        wait_until(has_ended, seconds, "its end", self)
        return self._process.wait()

    def assert_nothing_left(self, seconds: float = 5.0) -> None:
        """Every process it ever showed is gone, and so is every name in /dev/shm."""
        wait_until(lambda: not any(map(is_running, self._seen)), seconds, "the end of its processes")
        wait_until(lambda: not left_in_shared_memory() - self._left_before, seconds, "the end of names in /dev/shm")

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def out(self) -> str:
        return self._output[0].read_text()

    @property
    def err(self) -> str:
        return self._output[1].read_text()

    def metrics(self) -> list[dict[str, Any]]:
        """The whole lines of metrics.jsonl."""
        return read_metrics(self.path)

    def lives(self, actor: int) -> list[Life]:
        """Of an actor, oldest first."""
        return lives_of(self.path, actor)

    def wait_until(self, condition: Callable[[], Any], what: str, seconds: float = 60.0) -> None:
        """While it runs."""
        wait_until(lambda: condition() or not self.running, seconds, what, self)
        assert self.running, f"ended with {self.wait()} before {what}\n{self.err}"

    def wait_for_updates(self) -> None:
        self.wait_until(lambda: any(line["updates"] for line in self.metrics()), "the first line of metrics")


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def command_line(*arguments: object) -> Ended:
    """`pronk ...` in this process, which has imported torch already; its actors are processes all the same."""
    from pronk.cli import main

    out, err, path, argv = io.StringIO(), io.StringIO(), sys.path.copy(), sys.argv
    sys.argv = ["pronk", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        return Ended(int(end.code or 0), out.getvalue(), err.getvalue())
    finally:
        sys.path[:], sys.argv = path, argv
    return Ended(0, out.getvalue(), err.getvalue())


def lives_of(run: Path, actor: int = 0) -> list[Life]:
    """Of an actor, oldest first."""
    log = run / "logs" / f"actor-{actor:03d}.log"
    told = re.split(rf"actor {actor} starts \(life (\d+), pid (\d+)\)\n", log.read_text() if log.exists() else "")
    return [Life(int(told[i]), int(told[i + 1]), told[i + 2]) for i in range(1, len(told), 3)]


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """The whole lines of a run's metrics.jsonl."""
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line, parse_constant=refuse) for line in lines if line.endswith("\n")]


def read_summary(run: Path) -> dict[str, Any]:
    """summary.json, which must be strict JSON."""
    return json.loads((run / "summary.json").read_text(), parse_constant=refuse)


def refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def assert_monotone(lines: list[dict[str, Any]]) -> None:
    """Counters never go back."""
    for name in ("env_steps", "updates", "episodes", "wall_seconds"):
        values = [line[name] for line in lines]
        assert values == sorted(values), f"{name} goes back: {values}"


def wait_until(condition: Callable[[], Any], seconds: float, what: str, training: Training | None = None) -> None:
    """Look again and again; a generous limit, because the machine may be busy."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}\n{training.err if training else ''}"
        time.sleep(0.05)


def descendants_of(pid: int) -> set[Process]:
    """Children, their children and so on."""
    children: dict[int, list[Process]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (status := status_of(int(entry.name))) is not None:
            children.setdefault(int(status[1]), []).append(Process(int(entry.name), status[19]))
    found: set[Process] = set()
    parents = [pid]
    while parents:
        young = children.get(parents.pop(), [])
        found.update(young)
        parents += [process.pid for process in young]
    return found


def status_of(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name: state, parent, ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None


def is_running(process: Process) -> bool:
    """A zombie, which only waits to be collected, does not count."""
    status = status_of(process.pid)
    return status is not None and status[19] == process.started and status[0] not in "ZX"


def left_in_shared_memory() -> set[Path]:
    """Names in /dev/shm that no living process uses."""
    used: set[Path] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            used |= names_used_by(int(entry.name))
    return set(Path("/dev/shm").iterdir()) - used


def names_used_by(pid: int) -> set[Path]:
    """In /dev/shm; a semaphore is mapped under an earlier name, so the file's number has to tell."""
    with contextlib.suppress(OSError):
        lines = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "/dev/shm/" in line]
        mapped = {int(inode) for _, _, _, _, inode, *_ in lines}
        return {path for path in Path("/dev/shm").iterdir() if mapped and path.stat().st_ino in mapped}
    return set()


def checksummed_specs() -> Unroll:
    """A quarter of a megabyte: filling it takes long enough to be killed meanwhile."""
    env = EnvSpec(ArraySpec((64, 64), "uint8"), ActionSpec((), (4,)))
    return unroll_specs(env, {"core": ArraySpec((8,), "float32")}, length=15, envs=4)


def checksum(unroll: Unroll) -> int:
    """Of all the bytes but the field that carries it."""
    value = 0
    for name, array in leaves(unroll._asdict()):
        value = value if name == "version" else zlib.crc32(array.tobytes(), value)
    return value


def fill_for_ever(ticket: Ticket) -> None:
    """The actor's side: random bytes, and their checksum, into every unroll."""
    port = SharedMemoryActorPort(ticket, UnrollLayout(checksummed_specs()), 64)
    chance = np.random.default_rng()
    while True:
        with port.unroll() as unroll:
            unroll.version[:] = -1
            for _, array in leaves(unroll._asdict()):
                array[...] = np.frombuffer(chance.bytes(array.nbytes), array.dtype).reshape(array.shape)
            unroll.version[:] = checksum(unroll)


if __name__ == "__main__":
    fill_for_ever(Ticket(**json.loads(sys.argv[1])))
