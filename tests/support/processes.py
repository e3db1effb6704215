"""Real processes for tests: `pronk train` in its own session, its descendants, and whether anything is left behind."""

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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from forking import fresh_programs

from pronk.layout import UnrollLayout
from pronk.runs.directory import RunDirectory
from pronk.transport.shared_memory import SharedMemoryActorPort, Ticket
from pronk.types import ActionSpec, ArraySpec, EnvSpec, Unroll, leaves, unroll_specs

SUPPORT = Path(__file__).parent
PROC, SHARED_MEMORY = Path("/proc"), Path("/dev/shm")  # neither exists on macOS
# One pass, so that steps can be counted from updates; and nothing is left for the environment to decide.
SIZES = (
    "actors.envs=16",
    "actors.unroll_length=20",
    "actors.slots=2",
    "learner.batch_size=16",
    "learner.passes=1",
    "optimiser.learning_rate=1e-3",
    "loss.entropy_cost=0.01",
)
STEPS_PER_UPDATE = 16 * 20


class Process(NamedTuple):
    """A process id with its start time, because the system reuses ids."""

    pid: int
    started: str


class Life(NamedTuple):
    """One start of an actor, from its log."""

    number: int
    pid: int
    log: str


def start_pronk(
    *arguments: str,
    stdout: IO[bytes],
    stderr: IO[bytes],
    cwd: Path | None = None,
    within: tuple[str, ...] = (),
    fresh: bool = False,
    **environment: str,
) -> subprocess.Popen[bytes]:
    """Start `pronk ARGUMENTS` in a session of its own, as a `fresh` program or as a clone (forking.py)."""
    env = os.environ | {"PYTHONPATH": f"{SUPPORT}:{os.environ.get('PYTHONPATH', '')}", **environment}
    with fresh_programs() if fresh else contextlib.nullcontext():
        return subprocess.Popen(
            [*within, sys.executable, "-m", "pronk", *arguments],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=env,
            start_new_session=True,
        )


class Training:
    """A running `pronk train`. Leaving the block ends it and everything it started."""

    def __init__(
        self,
        path: Path,
        *arguments: str,
        command: str = "train",
        within: tuple[str, ...] = (),
        relative: bool = False,
        fresh: bool = False,
        **environment: str,
    ) -> None:
        """Start it, as a clone (forking.py) unless it is to be `fresh`.

        With `relative` it runs in the parent of the run directory, and is given the bare name.
        """
        self.path = path
        given = path.name if relative else str(path)
        self._names_before = names_in_shared_memory()
        self._output = path.with_name(path.name + ".out"), path.with_name(path.name + ".err")
        with open(self._output[0], "wb") as out, open(self._output[1], "wb") as err:
            self._process = start_pronk(
                *(command, *arguments, "--run-dir", given),
                within=within,
                stdout=out,
                stderr=err,
                cwd=path.parent if relative else None,
                fresh=fresh,
                **environment,
            )
        self.pid = self._process.pid
        self._seen: set[Process] = set()

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *_: object) -> None:
        self.descendants()
        self._process.kill()
        self._process.wait()
        for number in (signal.SIGTERM, signal.SIGKILL):  # SIGTERM first: Python's resource tracker cleans up on it
            for process in filter(is_running, self._seen):
                os.kill(process.pid, number)
            with contextlib.suppress(AssertionError):
                wait_until(lambda: not any(map(is_running, self._seen)), 2.0, "their end")

    def descendants(self) -> set[Process]:
        """Return its running descendants, and remember them for `assert_nothing_left`."""
        found = descendants_of(self.pid)
        self._seen |= found
        return found

    def send(self, number: signal.Signals, *, group: bool = False) -> None:
        """Send a signal to it, or to its process group as a terminal does with Ctrl-C."""
        self.descendants()
        (os.killpg if group else os.kill)(self.pid, number)

    def wait(self, seconds: float = 60.0) -> int:
        """Wait for its end and return the exit code."""

        def has_ended() -> bool:
            self.descendants()
            return not self.running

        wait_until(has_ended, seconds, "its end", self)
        return self._process.wait()

    def assert_nothing_left(self, seconds: float = 60.0) -> None:
        """Every process seen among its descendants ends, and every name in /dev/shm goes."""
        wait_until(lambda: not any(map(is_running, self._seen)), seconds, "the end of its processes")
        wait_until(lambda: not left_in_shared_memory(self._names_before), seconds, "the end of names in /dev/shm")

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
        return read_metrics(self.path)

    def lives(self, actor: int) -> list[Life]:
        return lives_of(self.path, actor)

    def wait_until(self, condition: Callable[[], Any], what: str, seconds: float = 60.0) -> None:
        """Wait for a condition; fail if the training ends before it holds."""
        wait_until(lambda: condition() or not self.running, seconds, what, self)
        assert self.running, f"ended with {self.wait()} before {what}\n{self.err}"

    def wait_for_updates(self) -> None:
        self.wait_until(lambda: any(line["updates"] for line in self.metrics()), "the first line of metrics")


@contextlib.contextmanager
def trainings_at_once(folder: Path, commands: dict[str, tuple[str, ...]]) -> Iterator[dict[str, Training]]:
    """Start several trainings together, because most of their time goes into starting."""
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(Training(folder / name, *command)) for name, command in commands.items()}


class Ended(NamedTuple):
    """The exit code and output of a command."""

    code: int
    out: str
    err: str


def command_line(*arguments: object) -> Ended:
    """Run `pronk ...` in this process, which has imported torch already. Actors are separate processes all the same."""
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
    """Every start of an actor, oldest first."""
    log = run / "logs" / f"actor-{actor:03d}.log"
    told = re.split(rf"actor {actor} starts \(life (\d+), pid (\d+)\)\n", log.read_text() if log.exists() else "")
    return [Life(int(told[i]), int(told[i + 1]), told[i + 2]) for i in range(1, len(told), 3)]


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl, without one that is still being written."""
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line, parse_constant=refuse) for line in lines if line.endswith("\n")]


def read_summary(run: Path) -> dict[str, Any]:
    """summary.json, read as strict JSON."""
    return json.loads((run / "summary.json").read_text(), parse_constant=refuse)


def refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def assert_monotone(lines: list[dict[str, Any]]) -> None:
    """Counters never decrease."""
    for name in ("env_steps", "updates", "episodes", "wall_seconds"):
        values = [line[name] for line in lines]
        assert values == sorted(values), f"{name} decreases: {values}"


def assert_saved(run: Path, outcome: str) -> None:
    """The newest checkpoint, the summary and the last line of metrics agree."""
    summary = read_summary(run)
    assert summary["outcome"] == outcome
    state, problems = RunDirectory.open(run).checkpoints.restore()
    assert not problems
    assert state["learner"]["version"] == state["metrics"]["updates"] == summary["updates"]
    assert state["metrics"]["env_steps"] == summary["env_steps"] == read_metrics(run)[-1]["env_steps"]
    assert summary["env_steps"] == summary["updates"] * STEPS_PER_UPDATE


def assert_resumes(run: Path, before: dict[str, Any], *arguments: object) -> None:
    """Resume a run with `pronk train ARGUMENTS`, ten updates further than `before` (a summary): its counters go on."""
    goal = before["env_steps"] + 10 * STEPS_PER_UPDATE
    ended = command_line("train", *arguments, f"run.total_steps={goal}", "--resume", "--quiet")
    assert ended.code == 0, ended.err
    assert_saved(run, "finished")
    assert_monotone(read_metrics(run))
    after = read_summary(run)
    assert after["env_steps"] == goal
    assert after["episodes"] > before["episodes"] > 0
    assert after["wall_seconds"] > before["wall_seconds"] > 0


def wait_until(condition: Callable[[], Any], seconds: float, what: str, training: Training | None = None) -> None:
    """Poll a condition. Limits are generous, because the machine may be busy: passing one means a hang."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}\n{training.err if training else ''}"
        time.sleep(0.2)  # many conditions read /proc, which costs milliseconds


def descendants_of(pid: int) -> set[Process]:
    """The running children of a process, their children and so on."""
    children: dict[int, list[Process]] = {}
    for process, parent in all_processes():
        children.setdefault(parent, []).append(process)
    found: set[Process] = set()
    parents = [pid]
    while parents:
        young = children.get(parents.pop(), [])
        found.update(young)
        parents += [process.pid for process in young]
    return found


def all_processes() -> Iterator[tuple[Process, int]]:
    """Every process but zombies, with its parent's id."""
    if PROC.exists():
        for pid in [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]:
            with contextlib.suppress(OSError):
                state, parent, *rest = (PROC / f"{pid}/stat").read_text().rpartition(") ")[2].split()
                if state not in "ZX":
                    yield Process(pid, rest[17]), int(parent)
    else:  # macOS
        listed = subprocess.run(["ps", "-axo", "pid=,ppid=,state=,lstart="], capture_output=True, text=True, check=True)
        for line in listed.stdout.splitlines():
            number, parent, state, started = line.split(maxsplit=3)
            if not state.startswith("Z"):
                yield Process(int(number), started), int(parent)


def process_of(pid: int) -> Process:
    """The running process with this id."""
    return next(process for process, _ in all_processes() if process.pid == pid)


def is_running(process: Process) -> bool:
    if not PROC.exists():
        return any(process == each for each, _ in all_processes())
    try:
        status = (PROC / f"{process.pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return False
    return status[19] == process.started and status[0] not in "ZX"


def left_in_shared_memory(before: set[Path]) -> set[Path]:
    """Names in /dev/shm that were not there before and that no running process has mapped."""
    new = names_in_shared_memory() - before
    if new:  # else there is no need to read the maps of every process, which takes long
        new -= {name for process, _ in all_processes() for name in names_used_by(process.pid)}
    return new


def names_in_shared_memory() -> set[Path]:
    return set(SHARED_MEMORY.iterdir()) if SHARED_MEMORY.exists() else set()


def names_used_by(pid: int) -> set[Path]:
    """Names in /dev/shm that a process has mapped. Compared by inode: a semaphore is mapped under an earlier name."""
    with contextlib.suppress(OSError):
        lines = [
            line.split() for line in (PROC / f"{pid}/maps").read_text().splitlines() if f"{SHARED_MEMORY}/" in line
        ]
        mapped = {int(inode) for _, _, _, _, inode, *_ in lines}
        return {path for path in names_in_shared_memory() if mapped and path.stat().st_ino in mapped}
    return set()


def checksummed_specs() -> Unroll:
    """An unroll of a quarter of a megabyte: a process that fills it can be killed half-way."""
    env = EnvSpec(ArraySpec((64, 64), "uint8"), ActionSpec((), (4,)))
    return unroll_specs(env, {"core": ArraySpec((8,), "float32")}, length=15, envs=4)


def checksum(unroll: Unroll) -> int:
    """A checksum of every field but `version`, which carries it."""
    value = 0
    for name, array in leaves(unroll._asdict()):
        value = value if name == "version" else zlib.crc32(array.tobytes(), value)
    return value


def fill_for_ever(ticket: Ticket) -> None:
    """Send unrolls of random bytes with their checksum, until killed."""
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
