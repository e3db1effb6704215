"""What keeps strangers out of a fleet: a certificate and a token, made for one run and never written down here."""

from __future__ import annotations

import secrets
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from pronk.types import UserError

SERVER_NAME = "pronk-learner"
"""In the certificate; actors ask for it by this name, whatever the machine is called."""


@dataclass(frozen=True)
class Keys:
    """For the learners all of it, for the actors the certificate and the token."""

    certificate: str = field(repr=False)
    private_key: str = field(repr=False)
    token: str = field(repr=False)


def make_keys() -> Keys:
    """With the openssl program, which is wherever ssh is."""
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
            raise UserError("a fleet needs the program openssl for its certificate; please install it") from None
        if made.returncode:
            raise UserError(f"openssl could not make a certificate: {made.stderr.strip()}")
        return Keys(certificate.read_text(), key.read_text(), secrets.token_hex(32))
