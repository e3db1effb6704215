"""A certificate and a token, made for one run on a cluster and never saved on this machine."""

from __future__ import annotations

import secrets
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from pronk.types import UserError

SERVER_NAME = "pronk-learner"
"""Name in the certificate. Actors expect it instead of the name of the learner's machine."""


@dataclass(frozen=True)
class RunCredentials:
    """Learners get all of it, actors the certificate and the token."""

    certificate: str = field(repr=False)
    private_key: str = field(repr=False)
    token: str = field(repr=False)


def make_credentials() -> RunCredentials:
    """Make them with the program `openssl`, which machines with `ssh` usually have."""
    with tempfile.TemporaryDirectory() as folder:
        key, certificate = Path(folder) / "key.pem", Path(folder) / "certificate.pem"
        command = [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "365", "-subj", f"/CN={SERVER_NAME}", "-addext", f"subjectAltName=DNS:{SERVER_NAME}"),
            *("-keyout", str(key), "-out", str(certificate)),
        ]
        try:
            made = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:
            raise UserError(
                "the program openssl is not installed; it makes the certificate of a run on other machines"
            ) from None
        if made.returncode:
            raise UserError(f"openssl could not make a certificate: {made.stderr.strip()}")
        return RunCredentials(certificate.read_text(), key.read_text(), secrets.token_hex(32))
