"""The contract of a supervised process, over a tiny real child: start, messages, restarts, hangs, root causes, ends."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from forking import fresh_programs
from processes import is_running, process_of, wait_until

from pronk.processes import child, logs, supervisor
from pronk.processes.messages import Evaluate, Evaluated, Message
from pronk.processes.restarts import NEVER, RestartPolicy
from pronk.processes.supervisor import Child, ProcessFailed, Start, SupervisedProcess, Supervisor
from pronk.types import UserError

SECONDS = 60.0  # on a busy machine
QUICK = RestartPolicy(max_failures=3, max_kills=5, first_pause=0.01, last_pause=0.05)


class Bench:
    """One supervised child, what it sent and what the user was told."""

    def __init__(self, log: Path, do: str, policy: RestartPolicy = QUICK, **options: Any) -> None:
        self.messages: list[Message] = []
        self.said: list[str] = []
        spec = Child(
            name="child 7",
            program="tiny_child",
            log=log,
            prepare=lambda life: Start({"do": do}),
            policy=policy,
            progress=lambda: len(self.messages),
            **options,
        )
        self.child = SupervisedProcess(spec, self.said.append)

    def poll_until(self, condition: Callable[[], Any]) -> None:
        def met() -> bool:
            self.messages += self.child.poll()
            return bool(condition())

        wait_until(met, SECONDS, "the condition")

    def poll_to_failure(self) -> str:
        with pytest.raises(ProcessFailed) as failed:
            self.poll_until(lambda: False)
        return str(failed.value)

    def pid(self) -> int:
        assert self.child.process is not None
        return self.child.process.pid


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(do: str, *arguments: Any, **options: Any) -> Bench:
        made.append(Bench(tmp_path / "child.log", do, *arguments, **options))
        made[-1].child.start()
        return made[-1]

    yield make
    for one in made:
        one.child.stop()


def test_messages_go_both_ways_and_closing_the_channel_ends_the_child(bench: Callable[..., Bench]) -> None:
    one = bench("echo")
    for number in range(3):
        one.child.send(Evaluate(f"checkpoint {number}", "x" * 300_000))  # more than a socket's buffer
    one.poll_until(lambda: len(one.messages) == 3)
    assert [message.line["path"] for message in one.messages] == ["checkpoint 0", "checkpoint 1", "checkpoint 2"]
    process, pid = one.child.process, one.pid()
    one.child.stop(time.monotonic() + SECONDS)
    assert process.returncode == 0
    assert f"child 7 starts (life 0, pid {pid})" in one.child.spec.log.read_text()
    assert one.said == []


def test_an_exception_is_the_root_cause_without_pronks_frames(bench: Callable[..., Bench]) -> None:
    one = bench("raise")
    cause = one.poll_to_failure()
    assert cause.startswith("child 7 failed 3 times in a row: Traceback")
    assert cause.endswith("RuntimeError: the wheel came off")
    assert cause.count('tiny_child.py", line') == 1
    assert "pronk" not in cause
    assert len(one.said) == 2
    assert one.said[0].startswith("child 7 failed (RuntimeError: the wheel came off); restarting it. Its log: ")
    assert one.child.lives == 3


def test_a_flooded_log_stays_small_and_keeps_its_end(bench: Callable[..., Bench], monkeypatch: Any) -> None:
    monkeypatch.setattr(supervisor, "LOG_SECONDS", 0.0)
    monkeypatch.setattr(logs.bound, "__defaults__", (100_000,))
    one = bench("flood")
    log = one.child.spec.log
    old, numbers = log.with_name("child.log.old"), []
    for _ in range(3):
        old.unlink(missing_ok=True)
        one.poll_until(old.exists)
        assert old.stat().st_size <= 100_000
        numbers.append(int(old.read_text().splitlines()[-2][:9]))
    assert numbers == sorted(set(numbers))
    child.kill(one.child.process)
    logs.bound(log)
    assert log.stat().st_size <= 100_000


def test_errors_may_be_final(bench: Callable[..., Bench]) -> None:
    one = bench("raise", errors_are_final=lambda: True)
    assert one.poll_to_failure().startswith("child 7 failed: Traceback")
    assert one.child.lives == 1


def test_a_users_mistake_is_raised_at_once_as_such(bench: Callable[..., Bench]) -> None:
    one = bench("mistake")
    with pytest.raises(UserError, match=r"^run\.seed: must be a number$"):
        one.poll_until(lambda: False)
    assert one.child.lives == 1


@pytest.mark.parametrize(
    ("do", "cause"), [("exit", "exit code 3"), ("crash", "killed by SIGSEGV"), ("print", "exit code 4")]
)
def test_an_end_without_a_message_is_told_with_the_end_of_the_log(
    do: str, cause: str, bench: Callable[..., Bench]
) -> None:
    told = bench(do, NEVER).poll_to_failure()
    assert told.startswith(f"child 7 failed: {cause}; its log ends with:\n")
    if do == "print":
        assert told.endswith("\n".join(f"line {number}" for number in range(85, 100)))


def test_kills_from_outside_do_not_count_as_failures(bench: Callable[..., Bench]) -> None:
    one = bench("echo")
    for kill in range(QUICK.max_kills * 2):
        one.child.send(Evaluate(str(kill), ""))
        one.poll_until(lambda kill=kill: len(one.messages) > kill)  # it works
        os.kill(one.pid(), signal.SIGKILL)
        one.poll_until(lambda kill=kill: one.child.lives == kill + 2)
    assert all("killed by SIGKILL" in line for line in one.said)


def test_a_child_that_is_killed_again_and_again_before_it_works_is_given_up(bench: Callable[..., Bench]) -> None:
    one = bench("echo")
    for kill in range(QUICK.max_kills):
        one.poll_until(lambda kill=kill: one.child.lives == kill + 1)
        os.kill(one.pid(), signal.SIGKILL)
    assert one.poll_to_failure().startswith("child 7 failed 5 times in a row: killed by SIGKILL")


def test_a_hang_is_found_and_its_stack_is_in_the_message_and_in_the_log(bench: Callable[..., Bench]) -> None:
    one = bench("hang", NEVER, timeout_seconds=1.0, silence="no unroll")
    one.child.spec.__dict__["silent_seconds"] = silent_after_first_message(one.child)
    cause = one.poll_to_failure()
    assert cause.startswith("child 7 failed: no unroll for 1 s (actors.timeout_seconds); it was here:\n")
    assert "in hang_here" in cause
    assert "in hang_here" in one.child.spec.log.read_text()


def silent_after_first_message(child: SupervisedProcess) -> Callable[[], float]:
    """On a busy machine a start may take long."""
    return lambda: time.monotonic() - child.last_message_at if child.has_reported else 0.0


def test_a_child_that_hangs_while_it_starts_is_found(bench: Callable[..., Bench]) -> None:
    one = bench("hang silently", NEVER, timeout_seconds=0.5, silent_seconds=lambda: one.child.silent_seconds(1.0))
    assert one.child.silent_seconds(60.0) < 0, "a start may take a minute"
    assert "no sign of life for 0.5 s" in one.poll_to_failure()


def test_a_stopped_child_is_found_too(bench: Callable[..., Bench]) -> None:
    one = bench("echo", NEVER, timeout_seconds=0.5)
    one.child.send(Evaluate("", ""))
    one.poll_until(lambda: one.messages)
    os.kill(one.pid(), signal.SIGSTOP)
    one.child.spec.__dict__["silent_seconds"] = silent_after_first_message(one.child)
    assert "it is stopped (SIGSTOP)" in one.poll_to_failure()


def test_a_child_that_hangs_after_it_failed_is_ended_with_its_cause(bench: Callable[..., Bench]) -> None:
    assert bench("hang after failing", NEVER).poll_to_failure().endswith("RuntimeError: the wheel came off")


def test_only_the_first_life_compiles_modules_to_disk(bench: Callable[..., Bench]) -> None:
    one = bench("say whether it compiles")
    one.poll_until(lambda: one.messages)
    os.kill(one.pid(), signal.SIGKILL)
    one.poll_until(lambda: len(one.messages) == 2)
    assert [message.line["compiles"] for message in one.messages] == [True, False]


def test_steady_work_starts_the_count_again(bench: Callable[..., Bench]) -> None:
    one = bench("work, then raise", RestartPolicy(max_failures=2, steady_seconds=0.0, first_pause=0.01))
    one.poll_until(lambda: one.child.lives == 4)
    assert len(one.messages) >= 3


def test_all_that_a_child_started_ends_with_it(bench: Callable[..., Bench]) -> None:
    one = bench("start another")
    one.poll_until(lambda: one.messages)
    (message,) = one.messages
    assert isinstance(message, Evaluated)
    other = process_of(message.line["other"])
    one.child.stop()
    wait_until(lambda: not is_running(other), SECONDS, "its end")


def test_a_child_that_cannot_be_started_counts_as_a_failure(bench: Callable[..., Bench], tmp_path: Path) -> None:
    (tmp_path / "child.log").mkdir()
    one = bench("echo")
    descriptors = open_descriptors()
    assert "child 7 failed 3 times in a row: [Errno 21] Is a directory" in one.poll_to_failure()
    assert open_descriptors() == descriptors, "a failed start leaks none"


def open_descriptors() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


def test_a_child_lives_on_a_disk_that_is_full(bench: Callable[..., Bench], monkeypatch: Any) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # the first life would leave truncated files
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))  # inherited by the child
    try:
        with fresh_programs():  # a clone would have the limits of another process
            one = bench("print and echo", NEVER)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    one.poll_until(lambda: one.messages)
    assert one.child.process is not None
    assert one.child.lives == 1
    assert one.child.spec.log.stat().st_size <= 1


def test_a_log_that_cannot_be_made_for_want_of_room_is_done_without(tmp_path: Path, monkeypatch: Any) -> None:
    def full(name: Any, mode: str) -> Any:
        if name != os.devnull:
            raise OSError(errno.ENOSPC, "No space left on device", str(name))
        return open(name, mode)

    monkeypatch.setattr(child, "open", full, raising=False)
    with child.opened_log(tmp_path / "child.log") as file:
        assert file.name == os.devnull


def test_a_hang_is_found_though_the_log_was_removed(bench: Callable[..., Bench]) -> None:
    one = bench("echo", NEVER, timeout_seconds=0.5)
    one.child.send(Evaluate("", ""))
    one.poll_until(lambda: one.messages)
    one.child.spec.log.unlink()
    one.child.spec.__dict__["silent_seconds"] = silent_after_first_message(one.child)
    assert "no sign of life for 0.5 s" in one.poll_to_failure()


def test_a_supervisor_watches_and_ends_several(tmp_path: Path) -> None:
    benches = [Bench(tmp_path / f"{number}.log", "echo") for number in range(3)]
    supervisor = Supervisor([one.child for one in benches], SECONDS)
    with contextlib.ExitStack() as stack:
        stack.callback(supervisor.stop)
        supervisor.start()
        pids = [one.pid() for one in benches]
        assert supervisor.watch()
        assert not supervisor.watch(), "not so soon"
        processes = [one.child.process for one in benches]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(set(pids)) == 3


PARENT = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_supervisor import Bench
one = Bench(Path(sys.argv[1]), "hang")
one.child.start()
print(one.pid(), flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends it on Linux only")
def test_a_child_ends_with_its_parent_even_while_it_hangs(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "child.log"), str(Path(__file__).parent)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as parent:
        assert parent.stdout is not None
        child = process_of(int(parent.stdout.readline()))
        wait_until(lambda: "starts" in (tmp_path / "child.log").read_text(), SECONDS, "its start")
        parent.kill()
    wait_until(lambda: not is_running(child), SECONDS, "its end")


def test_kills_from_outside_end_nothing_while_others_work(tmp_path: Path) -> None:
    working = True
    bench = Bench(tmp_path / "log", "hang", others_work=lambda: working)
    bench.child.start()

    def kill() -> None:
        bench.poll_until(lambda: bench.child.process is not None)
        os.kill(bench.pid(), signal.SIGKILL)
        bench.poll_until(lambda: bench.child.process is None)

    for _ in range(8):  # max_kills is 5
        kill()
    working = False
    with pytest.raises(ProcessFailed, match="killed by SIGKILL"):
        kill()


def test_a_stopped_child_is_not_to_blame(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "log", "hang", timeout_seconds=1.0, silent_seconds=lambda: 2.0 * stopped, timeout_key=None)
    for _ in range(4):  # max_failures is 3
        stopped = False
        bench.poll_until(lambda: bench.child.process is not None and bench.child.has_reported)
        os.kill(bench.pid(), signal.SIGSTOP)
        wait_until(lambda: child.is_stopped(process_of_child(bench)), SECONDS, "its stop")
        stopped = True
        bench.poll_until(lambda: bench.child.process is None)
    assert set(bench.said) == {
        f"child 7 failed (no sign of life for 1 s: it is stopped (SIGSTOP)); restarting it. Its log: {tmp_path / 'log'}"
    }
    bench.child.stop()


def process_of_child(bench: Bench) -> subprocess.Popen[bytes]:
    assert bench.child.process is not None
    return bench.child.process
