"""N environments, each in a process of its own, stepped at the same time.

The processes are forked from this one, which has one thread when environments are made. They share one anonymous block
of memory with it, which holds the columns of `Step` and the actions; nothing of it has a name that could be left
behind. A socket to each process carries one byte per command and one per answer:

    here -> process    STEP | RESET and the seed | end of file: close the environment and exit
    process -> here    DONE | FAILED or MISTAKE, then a text up to the end of file

A process ends with this one: the kernel ends it on Linux; elsewhere it reads the end of file.
"""

from __future__ import annotations

import contextlib
import faulthandler
import mmap
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from pronk.envs.autoreset import AutoresetEnv
from pronk.envs.frame_skip import frames_per_step
from pronk.envs.spaces import translation
from pronk.envs.time_limit import time_limit_of
from pronk.envs.wrappers import notes_of
from pronk.layout import Layout
from pronk.processes.failures import user_traceback
from pronk.processes.lifeline import die_with_parent
from pronk.types import Array, EnvSpec, Step, UserError, step_specs

STEP, RESET, DONE, FAILED, MISTAKE = b"s", b"r", b".", b"!", b"?"
SEED_BYTES = 8
CLOSE_SECONDS = 2.0  # for an environment to close
STACK_SECONDS = 0.5  # for a process that hangs to write its stack


class AsyncVector:
    """A `VectorEnv` over single environments; see `autoreset.py` for how each is stepped.

    An environment that raises, dies, or does not answer within `timeout` seconds fails the whole vector; the error
    says which one it was, and where it raised or hangs.
    """

    def __init__(self, make_one: Callable[[], Any], count: int, timeout: float, info: tuple[str, ...] = ()) -> None:
        example = make_one()
        observation, action, self.encode, self.decode = translation(example.observation_space, example.action_space)
        self.spec = EnvSpec(
            observation,
            action,
            frames_per_step(example),
            info=info,
            notes=notes_of(example),
            time_limit=time_limit_of(example),
        )
        example.close()
        self.count, self.task = count, np.zeros(count, np.int32)
        layout = Layout({**step_specs(self.spec, count)._asdict(), "action": action.array.batched(count)})
        arrays = layout.view(mmap.mmap(-1, layout.nbytes))
        self._action = arrays.pop("action")
        self._columns = Step(**arrays)
        self._processes: list[EnvProcess] = []

        def serve(index: int, connection: socket.socket) -> None:
            for process in self._processes:  # forked before this one: only the parent may hold the other ends
                process.connection.close()
            env = AutoresetEnv(make_one(), index, self._columns, observation, self.encode)
            answer_commands(env, connection, lambda: self.decode(self._action[index : index + 1])[0])

        try:
            for index in range(count):
                self._processes.append(EnvProcess(index, serve, timeout))
            self._wait_for_all()
        except BaseException:
            self.close()
            raise

    def reset(self, seeds: list[int]) -> Step:
        """Open a new episode in each environment."""
        for process, seed in zip(self._processes, seeds, strict=True):
            process.send(RESET + int(seed).to_bytes(SEED_BYTES, "little"))
        return self._wait_for_all()

    def step(self, action: Array) -> Step:
        """Play one action in each environment."""
        self.start_step(action)
        return self.finish_step()

    def start_step(self, action: Array) -> None:
        """Send the actions; `finish_step` waits for the answers. Vectors of several tasks step at the same time."""
        self._action[...] = action
        for process in self._processes:
            process.send(STEP)

    def finish_step(self) -> Step:
        """Wait for the answers to `start_step`."""
        return self._wait_for_all()

    def close(self) -> None:
        """Close the environments and end their processes."""
        for process in self._processes:
            process.hang_up()
        deadline = time.monotonic() + CLOSE_SECONDS
        for process in self._processes:
            process.end(deadline)
        self._processes = []

    def _wait_for_all(self) -> Step:
        for process in self._processes:
            process.wait()
        return self._columns


class EnvProcess:
    """The parent's side of one environment's process."""

    def __init__(self, index: int, serve: Callable[[int, socket.socket], None], timeout: float) -> None:
        self._index, self._timeout = index, timeout
        self.connection, theirs = socket.socketpair()
        sys.stdout.flush()  # else the process would write the parent's buffered output once more
        sys.stderr.flush()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            self.connection.close()
            run(serve, index, theirs, parent)
        theirs.close()
        self.connection.settimeout(timeout)

    def send(self, command: bytes) -> None:
        """Send a command. A dead process raises nothing here: `wait` reports it with its cause."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.sendall(command)

    def wait(self) -> None:
        """Wait until the last command is done; raise what went wrong in the environment."""
        try:
            answer = self.connection.recv(1)
        except TimeoutError:
            raise TimeoutError(
                f"environment {self._index} did not answer for {self._timeout:g} s; it was here:\n{self._stack()}"
            ) from None
        except ConnectionResetError:
            answer = b""
        if answer != DONE:
            self._raise(answer)

    def _raise(self, answer: bytes) -> NoReturn:
        text = self._read() if answer else ""
        if answer == MISTAKE:
            raise UserError(text)
        if answer == FAILED:
            raise RuntimeError(f"environment {self._index} raised {text}")
        code = self._collect(time.monotonic() + CLOSE_SECONDS)
        reason = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        raise RuntimeError(f"the process of environment {self._index} died: {reason}")

    def _stack(self) -> str:
        os.kill(self._pid, signal.SIGUSR1)
        self.connection.settimeout(STACK_SECONDS)
        return self._read() or "(it wrote no stack)"

    def _read(self) -> str:
        """Read up to the end of file, or until the socket times out."""
        parts = []
        with contextlib.suppress(TimeoutError, ConnectionResetError):
            while part := self.connection.recv(65536):
                parts.append(part)
        return b"".join(parts).decode(errors="replace").strip()

    def hang_up(self) -> None:
        """Ask the process to end."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)

    def end(self, deadline: float) -> None:
        """Wait for the end of the process until the deadline (of `time.monotonic`), then kill it."""
        if self._pid:
            self._collect(deadline)
        self.connection.close()

    def _collect(self, deadline: float) -> int:
        """Return the exit code, negative for a signal; kill the process at the deadline."""
        ended, status = os.waitpid(self._pid, os.WNOHANG)
        while not ended:
            if time.monotonic() > deadline:
                os.kill(self._pid, signal.SIGKILL)
                ended, status = os.waitpid(self._pid, 0)
            else:
                time.sleep(0.001)
                ended, status = os.waitpid(self._pid, os.WNOHANG)
        self._pid = 0
        return os.waitstatus_to_exitcode(status)


def run(serve: Callable[[int, socket.socket], None], index: int, connection: socket.socket, parent: int) -> NoReturn:
    """Run the process of one environment: report what it raises, and exit without the parent's clean-up."""
    code = 1
    try:
        die_with_parent(parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the learner handles Ctrl-C
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        faulthandler.register(signal.SIGUSR1, file=connection.fileno(), all_threads=False)
        serve(index, connection)
        code = 0
    except UserError as error:
        report(connection, MISTAKE, str(error))
    except Exception as error:
        described = "".join(traceback.format_exception_only(error)).rstrip()
        frames = user_traceback(error).removesuffix(described)
        report(connection, FAILED, f"{described}\n{frames}")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # not `exit`, which would run the parent's exit handlers and wait for the environment's threads


def report(connection: socket.socket, kind: bytes, text: str) -> None:
    """Tell the parent what went wrong; it may be gone."""
    with contextlib.suppress(OSError):
        connection.sendall(kind + text.encode())


def answer_commands(env: AutoresetEnv, connection: socket.socket, action: Callable[[], Any]) -> None:
    """Carry out the parent's commands until it closes the connection. `action` reads the action to play."""
    connection.sendall(DONE)  # the environment is made
    while command := connection.recv(1):
        if command == STEP:
            env.step(action())
        else:
            env.reset(int.from_bytes(connection.recv(SEED_BYTES, socket.MSG_WAITALL), "little"))
        connection.sendall(DONE)
    env.close()
