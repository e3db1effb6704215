"""`pronk ...` as a process of its own that has imported torch already: forked from a server that did so once.

A fresh program spends 1.5 s of a core on imports, and the end-to-end tests start dozens. A forked one has a process id,
a session, signals, output and an exit code as a fresh one has; what it starts itself are fresh programs.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import IO, NoReturn

ANSWER_SECONDS = 120.0  # for a busy machine to import torch
LONGEST_REQUEST = 1 << 18  # bytes
POLL_SECONDS = 0.02


class ForkedProcess:
    """`pronk ARGUMENTS` in a session of its own; as much of `subprocess.Popen` as the tests use."""

    def __init__(
        self, arguments: Sequence[str], stdout: IO[bytes], stderr: IO[bytes], cwd: str, env: dict[str, str]
    ) -> None:
        request = json.dumps({"arguments": arguments, "cwd": cwd, "env": env}).encode()
        self._answers, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._answers.settimeout(ANSWER_SECONDS)
        with theirs:
            socket.send_fds(server(), [request], [stdout.fileno(), stderr.fileno(), theirs.fileno()])
        self.pid = self._answer("pid")
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._answers], [], [], 0)[0]:
            self.returncode = self._answer("code")
            self._answers.close()
        return self.returncode

    def wait(self, timeout: float = 600.0) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("pronk", timeout)
            time.sleep(POLL_SECONDS)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _answer(self, wanted: str) -> int:
        """Receive the process id, or later the exit code."""
        kind, _, number = self._answers.recv(100).decode().partition(" ")
        assert kind == wanted, f"the forked process or its server has ended: {kind} {number}"
        return int(number)


@functools.cache
def server() -> socket.socket:
    """Start the server of this worker of pytest; return the socket for requests. The server ends when it is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, __file__, str(theirs.fileno())]
    with theirs:
        process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # not a terminal: what is forked buffers its output as it does in a file
            start_new_session=True,
        )
    atexit.register(process.wait, ANSWER_SECONDS)
    atexit.register(ours.close)  # first
    return ours


def serve(requests: socket.socket) -> None:
    """Fork for each request, and answer with exit codes. Returns when the tests have ended."""
    running: dict[int, socket.socket] = {}
    while True:
        if select.select([requests], [], [], POLL_SECONDS)[0]:
            request, descriptors, _, _ = socket.recv_fds(requests, LONGEST_REQUEST, 3)
            if not request:
                return
            out, err, answers = descriptors
            if (pid := os.fork()) == 0:
                for one in (requests, *running.values()):
                    one.close()
                run_pronk(out, err, answers, **json.loads(request))
            os.close(out)
            os.close(err)
            running[pid] = socket.socket(fileno=answers)
        for pid, answer in list(running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                with running.pop(pid), contextlib.suppress(OSError):  # of a test that did not wait
                    answer.send(f"code {os.waitstatus_to_exitcode(status)}".encode())


def run_pronk(out: int, err: int, answers: int, arguments: list[str], cwd: str, env: dict[str, str]) -> NoReturn:
    """As `python -m pronk ARGUMENTS` does."""
    for number, descriptor in enumerate((out, err), 1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path.insert(0, cwd)
    sys.argv[1:] = arguments
    gc.enable()
    with socket.socket(fileno=answers) as answer:
        answer.send(f"pid {os.getpid()}".encode())
    runpy.run_module("pronk", run_name="__main__", alter_sys=True)
    sys.exit()


if __name__ == "__main__":
    gc.disable()
    for module in ("gymnasium", "pronk.cli", "pronk.starting", "tensorboard.summary.writer.record_writer"):
        importlib.import_module(module)
    gc.freeze()  # so that a child does not copy what it only visits
    serve(socket.socket(fileno=int(sys.argv[1])))
