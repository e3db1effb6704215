"""`pronk learner` and `pronk actor` as real processes."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from processes import Training, start_pronk, wait_until
from through_grpc import Certificate

START = 240.0  # seconds: a busy machine takes its time to import torch
SMALL = (
    "actors.envs=16",
    "actors.unroll_length=10",
    "learner.batch_size=16",
    "learner.passes=1",
    "optimiser.learning_rate=1e-3",
    "learner.threads=1",
    "run.stop_return=null",
)


class Learner(Training):
    """`pronk learner`, listening on a free port of this machine."""

    def __init__(self, path: Path, *arguments: str, address: str = "127.0.0.1:0", **more: Any) -> None:
        arguments = (*arguments, f"gateway.address={address}", "run.log_every_seconds=0.2")
        super().__init__(path, *arguments, command="learner", **more)

    def wait_until_it_listens(self) -> str:
        """The address."""
        file = self.path / "address"
        self.wait_until(lambda: file.exists() and file.read_text().endswith("\n"), "the address", START)
        return file.read_text().strip()

    @property
    def steps(self) -> int:
        """Trained so far."""
        lines = self.metrics()
        return lines[-1]["env_steps"] if lines else 0

    def wait_for_steps(self, more: int, seconds: float = START) -> None:
        """From now on."""
        goal = self.steps + more
        self.wait_until(lambda: self.steps >= goal, f"{more} more steps", seconds)

    @property
    def log(self) -> str:
        """The gateway's."""
        return (self.path / "logs" / "gateway.log").read_text()


class Actor:
    """`pronk actor`; leaving the block ends it."""

    def __init__(
        self,
        output: Path,
        address: str,
        *arguments: str,
        within: tuple[str, ...] = (),
        fresh: bool = False,
        **environment: str,
    ) -> None:
        self._output = output
        with open(output, "wb") as out:
            self.process = start_pronk(
                *("actor", address, *arguments), stdout=out, stderr=out, within=within, fresh=fresh, **environment
            )

    def __enter__(self) -> Actor:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def said(self) -> str:
        return self._output.read_text()

    def wait_until_it_says(self, what: str, seconds: float = START) -> None:
        wait_until(lambda: what in self.said or self.process.poll() is not None, seconds, f"{what!r}")
        assert what in self.said, self.said

    def wait(self, seconds: float = START) -> int:
        """Its exit code."""
        return self.process.wait(seconds)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


def tls(made: Certificate, token_file: Path) -> list[str]:
    """The learner's half of the security."""
    return [
        f"gateway.certificate={made.certificate}",
        f"gateway.private_key={made.private_key}",
        f"gateway.token_file={token_file}",
    ]


def credentials(made: Certificate, token_file: Path) -> list[str]:
    """The actor's half."""
    return ["--ca", str(made.certificate), "--token-file", str(token_file)]


def everything_in(folder: Path) -> bytes:
    """All that a run wrote."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
