"""A real sshd on the loopback, with a port, keys and a configuration of its own."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
MAY_LOG_IN = Path(pwd.getpwuid(os.getuid()).pw_shell).name not in ("nologin", "false")
"""Whether sshd lets this user in: it starts the user's shell."""

CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
MaxStartups 100
PermitRootLogin prohibit-password
"""

CLIENT = """
Host *
    UserKnownHostsFile {folder}/known_hosts
    StrictHostKeyChecking yes
    ControlMaster no
Host alpha beta gamma
    HostName 127.0.0.1
    HostKeyAlias 127.0.0.1
"""


@dataclass
class Sshd:
    """What a client needs."""

    port: int
    key: Path
    config: Path
    user: str
    process: subprocess.Popen[bytes]


@contextlib.contextmanager
def running_sshd(folder: Path) -> Iterator[Sshd]:
    """Until the block ends."""
    assert SSHD
    for name in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    host_key = (folder / "host_key.pub").read_text()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}127.0.0.1 {host_key}")
    (folder / "sshd_config").write_text(CONFIG.format(port=port, folder=folder))
    (folder / "ssh_config").write_text(CLIENT.format(folder=folder))
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd asks for it when it is root's
    process = subprocess.Popen([SSHD, "-D", "-e", "-f", folder / "sshd_config"], stderr=subprocess.DEVNULL)
    try:
        wait_until_it_listens(port, process)
        yield Sshd(port, folder / "user_key", folder / "ssh_config", getuser(), process)
    finally:
        process.terminate()
        process.wait(10)


def wait_until_it_listens(port: int, process: subprocess.Popen[bytes]) -> None:
    """Or say that it does not."""
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert process.poll() is None, "sshd has ended"
        time.sleep(0.05)
    raise AssertionError("sshd does not listen")
