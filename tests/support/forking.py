"""Pronk's processes without the 1.3 s of imports that each would need: cloned from one that has imported torch.

`WarmPopen` replaces `subprocess.Popen` in the tests. Commands that run Pronk are handed to a *template*: a process that
has imported everything and does nothing else. It clones itself, and the clone runs the command:

    process --request, descriptors--> template --clone--> clone: runs the command
       '------------------- waits for it, kills it: it is the process's own child ---'

A clone has its own process id, session, signals, descriptors, environment and exit code, and it is a child of the
process that asked for it (CLONE_PARENT), so `waitpid`, `kill` and the end with the parent are the real ones. A clone
that runs a command of Pronk's has a template of its own. Linux only; everything else starts fresh programs.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib
import inspect
import json
import os
import platform
import runpy
import signal
import socket
import subprocess
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine())  # the number of the system call
CLONE_PARENT = 0x8000
AVAILABLE = sys.platform == "linux" and CLONE is not None
ANSWER_SECONDS = 120.0  # for a busy machine to import torch
LONGEST_REQUEST = 1 << 18  # bytes
MOST_DESCRIPTORS = 250
PRELOADED = (
    "gymnasium",
    "matplotlib.figure",
    "pronk.cli",
    "pronk.starting",
    "tensorboard.summary.writer.record_writer",
)
_fresh = False


@contextlib.contextmanager
def fresh_programs() -> Iterator[None]:
    """Start real programs inside this block: with the resource limits of this process, and all their imports."""
    global _fresh
    before, _fresh = _fresh, True
    try:
        yield
    finally:
        _fresh = before


class WarmPopen(subprocess.Popen):  # type: ignore[type-arg]
    """As `subprocess.Popen`, but commands that run Pronk are cloned from the template of this process."""

    def _execute_child(self, *arguments: Any) -> None:
        given = inspect.signature(super()._execute_child).bind(*arguments).arguments
        command = [os.fspath(part) for part in given["args"]] if isinstance(given["args"], list) else []
        if _fresh or not runs_pronk(command) or given["preexec_fn"]:
            super()._execute_child(*arguments)  # type: ignore[misc]
            return
        ends = ("p2cread", "c2pwrite", "errwrite")
        standard = [given[end] if given[end] != -1 else number for number, end in enumerate(ends)]
        request = {
            "command": command[1:],
            "numbers": [0, 1, 2, *given["pass_fds"]],
            "cwd": os.fspath(given["cwd"] or os.getcwd()),
            "env": dict(os.environ if given["env"] is None else given["env"]),
            "session": given["start_new_session"],
        }
        channel = template()
        socket.send_fds(channel, [json.dumps(request).encode()], [*standard, *given["pass_fds"]])
        self.pid = int(channel.recv(100))
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[end] for end in pipes))  # type: ignore[attr-defined]


def runs_pronk(command: list[str]) -> bool:
    """Whether it is one of the ways in which Pronk is started, of the three that there are."""
    if not command or command[0] != sys.executable:
        return False
    if command[1:3] == ["-m", "pronk"]:
        return True
    code = command[command.index("-c") + 1] if "-c" in command[1:3] else ""
    return "from pronk.processes.child import main" in code or "import run_pronk" in code


@functools.cache
def template() -> socket.socket:
    """Start a template for this process; return the socket for requests. The template ends when it is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(ANSWER_SECONDS)
    with theirs:
        template.process = subprocess.Popen(  # type: ignore[attr-defined]
            [sys.executable, __file__, str(theirs.fileno()), str(os.getpid())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # not a terminal: a clone buffers its output as it does in a file
            start_new_session=True,
        )
    return ours


def become_template(requests: socket.socket, parent: int) -> None:
    """Clone for each request; the clone answers with its process id. Ends with its parent or the socket."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        return
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, LONGEST_REQUEST, MOST_DESCRIPTORS)
        if not request:
            return
        wanted = json.loads(request)
        if clone() == 0:
            if wanted.pop("session"):
                os.setsid()
            requests.send(str(os.getpid()).encode())
            run(descriptors=descriptors, **wanted)
        for descriptor in descriptors:
            os.close(descriptor)


def clone() -> int:
    """As `os.fork`, but the new process is a child of this one's parent."""
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    pid = python.syscall(CLONE, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    python.PyOS_AfterFork_Child() if pid == 0 else python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError("clone failed")
    return pid


def run(command: list[str], numbers: list[int], descriptors: list[int], cwd: str, env: dict[str, str]) -> NoReturn:
    """Run a command as a new Python would."""
    place(descriptors, numbers)
    os.chdir(cwd)
    sys.path[:] = [*search_path(env), *(path for path in sys.path if path not in search_path(os.environ))]
    os.environ.clear()
    os.environ.update(env)
    if env.get("PYTHONUNBUFFERED"):
        sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
    gc.enable()
    if "-P" in command[:1]:
        command = command[1:]
    else:
        inherit_template()
        sys.path.insert(0, cwd if command[0] == "-m" else "")
    sys.argv[:] = [command[0], *command[2:]]
    if command[0] == "-m":
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(command[1], "<string>", "exec"), main.__dict__)
    sys.exit()


def place(descriptors: list[int], numbers: list[int]) -> None:
    """Give the received descriptors their numbers, and close everything else."""
    above_all = max(numbers, default=0) + 1  # and no further: there may be a low limit
    kept = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, above_all) for descriptor in descriptors]
    for descriptor in {int(name) for name in os.listdir("/proc/self/fd")} - {*kept}:
        with contextlib.suppress(OSError):  # the one that listed them
            os.close(descriptor)
    for descriptor, number in zip(kept, numbers, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)


def search_path(env: Mapping[str, str]) -> list[str]:
    return [entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]


def inherit_template() -> None:
    """Make a template for what this clone will start, while it has done nothing yet."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(ANSWER_SECONDS)
    parent = os.getpid()
    if os.fork() == 0:
        ours.close()
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):  # it must not hold a pipe open that the clone closes
            os.dup2(null, number)
        os.setsid()
        become_template(theirs, parent)
        os._exit(0)
    theirs.close()
    warm_up(ours)


def warm_up(requests: socket.socket | None = None) -> None:
    """Let this process start Pronk's programs from a template: the one given, or one that is started when needed."""
    global template
    if requests is not None:
        template = functools.cache(lambda: requests)
    if AVAILABLE:
        subprocess.Popen = WarmPopen  # type: ignore[misc]


if __name__ == "__main__":
    sys.modules["forking"] = sys.modules[__name__]
    gc.disable()
    for module in PRELOADED:
        importlib.import_module(module)
    gc.freeze()  # so that a clone does not copy what it only visits
    become_template(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
