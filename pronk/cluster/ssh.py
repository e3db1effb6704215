"""Processes on other machines over the system's `ssh`, with its agent, known hosts and configuration."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pronk.cluster.base import Placement
from pronk.cluster.hosts import Host
from pronk.processes.channel import Channel, ChannelClosed
from pronk.processes.messages import Alive, Exited, Message, Output, RunCommand, RunnerLost, Stop, decode
from pronk.types import UserError

ALIVE_SECONDS = 5.0  # between two heartbeats to the other side
CLOSE_SECONDS = 3.0  # for ssh to end by itself
OPTIONS = ("BatchMode=yes", "ConnectTimeout=20", "ServerAliveInterval=10", "ServerAliveCountMax=3")


class SshProcess:
    """A process that `ssh HOST pronk runner` runs on another machine; see `RemoteProcess`."""

    def __init__(self, host: Host, program: str, folder: str | None, ssh_config: Path | None) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        self._ssh = subprocess.Popen(
            ssh_command(host, program, folder, ssh_config),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # the terminal's Ctrl-C is not for ssh
        )
        assert self._ssh.stdin is not None
        assert self._ssh.stdout is not None
        reader, writer = os.dup(self._ssh.stdout.fileno()), os.dup(self._ssh.stdin.fileno())
        self._channel = Channel(reader, writer, message_or_output)
        self._ssh.stdin.close()
        self._ssh.stdout.close()
        self._alive_at = time.monotonic()
        self._ended = False

    def run(self, command: RunCommand) -> None:
        """See `RemoteProcess`."""
        self._send(command)

    def receive(self) -> list[Message]:
        """See `RemoteProcess`."""
        if self._ended:
            return []
        if time.monotonic() - self._alive_at > ALIVE_SECONDS:
            self._alive_at = time.monotonic()
            self._send(Alive())
        try:
            messages = self._channel.receive()
        except ChannelClosed:
            messages = [RunnerLost(self._reason())]
        self._ended = any(isinstance(message, Exited | RunnerLost) for message in messages)
        return messages

    def stop(self) -> None:
        """See `RemoteProcess`."""
        self._send(Stop())

    def close(self) -> None:
        """See `RemoteProcess`. The runner ends its process when its standard input is closed."""
        self._channel.close()
        try:
            self._ssh.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._ssh.kill()
            self._ssh.wait()
        self._errors.close()
        self._ended = True

    def _send(self, message: Message) -> None:
        with contextlib.suppress(ChannelClosed):  # `receive` reports it
            self._channel.send(message)

    def _reason(self) -> str:
        """Return why ssh ended: its last line, if it wrote any."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._ssh.wait(CLOSE_SECONDS)
        self._errors.seek(0)
        lines = [line for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip() if lines else f"ssh ended with code {self._ssh.returncode}"


def message_or_output(line: bytes) -> Message:
    """Decode a line. One that is not a message was printed by the remote shell at login."""
    try:
        return decode(line)
    except (ValueError, RecursionError):
        return Output(line.decode(errors="replace"))


def ssh_command(host: Host, program: str, folder: str | None, ssh_config: Path | None) -> list[str]:
    """Return the command that starts a process runner on a host."""
    config = [*(["-F", str(ssh_config)] if ssh_config else []), *(["-p", str(host.port)] if host.port else [])]
    key = ["-i", str(Path(host.key_file).expanduser()), "-o", "IdentitiesOnly=yes"] if host.key_file else []
    options = [word for option in OPTIONS for word in ("-o", option)]
    target = f"{host.user}@{host.host}" if host.user else host.host
    change_folder = f"cd {shlex.quote(folder)} && " if folder else ""
    return ["ssh", "-T", *config, *key, *options, target, f"{change_folder}exec {program} runner"]


def ssh_placements(
    hosts: list[Host], role: str, program: str, folder: str | None, ssh_config: Path | None
) -> list[Placement]:
    """Return one placement per process of this role."""

    def connect(host: Host) -> Callable[[], SshProcess]:
        return lambda: SshProcess(host, program, folder, ssh_config)

    return [
        Placement(host.host, connect(host), name, host.devices_of(index))
        for host in hosts
        if host.role == role
        for name in [host_name(host, ssh_config)]
        for index in range(host.count)
    ]


def host_name(host: Host, ssh_config: Path | None) -> str:
    """Return the name by which other machines know a host: `HostName` in ssh's configuration, if it is there."""
    command = ["ssh", "-G", *(["-F", str(ssh_config)] if ssh_config else []), host.host]
    try:
        settings = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    except FileNotFoundError:
        raise UserError("the program ssh is not installed") from None
    names = [line.split(" ", 1)[1] for line in settings if line.startswith("hostname ")]
    return names[0] if names else host.host
