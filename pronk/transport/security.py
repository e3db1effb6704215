"""Authentication and encryption: addresses, the shared token, TLS.

On a loopback address nothing is required. On any other the learner requires a certificate and a token, unless
gateway.insecure=true. The token comes from a file or the environment, stays in memory, and is neither printed nor
saved.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pronk.config import GatewayConfig, ResolvedConfig
from pronk.transport.codecs import compressor
from pronk.types import UserError

TOKEN_VARIABLE = "PRONK_TOKEN"


@dataclass(frozen=True)
class Credentials:
    """What one side proves its identity with. Kept out of `repr`, so that no traceback or log can show it."""

    token: str | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    private_key: bytes | None = field(default=None, repr=False)
    authority: bytes | None = field(default=None, repr=False)
    """Certificate authorities to trust. For an actor, empty means those that the system trusts."""
    server_name: str | None = None
    """Name in the learner's certificate, if it is not the host of the address."""

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.certificate is not None or self.authority is not None


def learner_credentials(config: GatewayConfig) -> tuple[Credentials, list[str]]:
    """Return the learner's credentials, and warnings. Raises UserError if the address requires more of them."""
    host, _ = split_address(str(config.address))
    if (config.certificate is None) != (config.private_key is None):
        raise UserError("gateway.certificate and gateway.private_key belong together; only one of them is set")
    if config.client_ca and not config.certificate:
        raise UserError("gateway.client_ca asks actors for certificates, which needs gateway.certificate as well")
    credentials = Credentials(
        token=read_token(config.token_file, "gateway.token_file"),
        certificate=read_file(config.certificate, "gateway.certificate"),
        private_key=read_file(config.private_key, "gateway.private_key"),
        authority=read_file(config.client_ca, "gateway.client_ca"),
    )
    lacking = [
        *([] if credentials.certificate else ["TLS (gateway.certificate and gateway.private_key)"]),
        *([] if credentials.token else [f"a token (gateway.token_file or ${TOKEN_VARIABLE})"]),
    ]
    if is_loopback(host) or not lacking:
        return credentials, []
    if not config.insecure:
        raise UserError(
            f"gateway.address={config.address} can be reached by other machines, so it needs "
            f"{' and '.join(lacking)}; gateway.insecure=true goes without"
        )
    return credentials, [f"gateway.insecure: {config.address} can be reached by other machines without {lacking[0]}"]


def actor_credentials(
    address: str,
    token_file: Path | None = None,
    ca: Path | None = None,
    certificate: Path | None = None,
    private_key: Path | None = None,
    insecure: bool = False,
    server_name: str | None = None,
) -> Credentials:
    """Return an actor's credentials. TLS is the default to other machines, so that no token travels in clear text."""
    host, port = split_address(address)
    if port == 0:
        raise UserError(f"{address}: a port is required; `pronk learner` prints it when it listens")
    if (certificate is None) != (private_key is None):
        raise UserError("a certificate and its private key belong together; only one of them is given")
    if insecure and ca:
        raise UserError("a certificate authority (ca) has no use without TLS (insecure); give only one of the two")
    authority = read_file(ca, "certificate authority")
    if authority is None and not insecure and (certificate or not is_loopback(host)):
        authority = b""
    return Credentials(
        token=read_token(token_file, "token file"),
        certificate=read_file(certificate, "certificate"),
        private_key=read_file(private_key, "private key"),
        authority=authority,
        server_name=server_name,
    )


def same_token(token: Any, wanted: str) -> bool:
    """Compare in constant time."""
    token = token if isinstance(token, bytes) else str(token).encode(errors="replace")
    return hmac.compare_digest(token, wanted.encode())


def read_token(path: str | Path | None, key: str) -> str | None:
    """Return the token from the file, else from the environment; None if there is neither."""
    content = read_file(path, key)
    token = content.decode(errors="replace").strip() if content is not None else os.environ.get(TOKEN_VARIABLE, "")
    where = f"{key}: {path}" if path else f"${TOKEN_VARIABLE}"
    if content is not None and not token:
        raise UserError(f"{where} is empty; it should hold the token")
    if token and not (token.isascii() and token.isprintable() and len(token) <= 1024):
        raise UserError(f"{where} does not hold a token: one line of at most 1,024 plain letters and digits")
    return token or None


def read_file(path: str | Path | None, key: str) -> bytes | None:
    """Return the content of a file. `~` and `$VARIABLES` in its name are expanded. Raises UserError."""
    if path is None:
        return None
    try:
        return Path(os.path.expandvars(path)).expanduser().read_bytes()
    except OSError as error:
        raise UserError(f"{key}: cannot read {path}: {error.strerror}") from None


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`; an IPv6 host is in brackets. Raises UserError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise UserError(f"{address!r} is not an address; write HOST:PORT, such as 127.0.0.1:5050")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_gateway(config: ResolvedConfig) -> None:
    """Raise UserError for what would keep the gateway from starting, before anything is started."""
    if config.has_gateway:
        compressor(config.transport.compression)
    if config.gateway.address is not None:
        learner_credentials(config.gateway)
        refuse_used_address(config.gateway.address)


def refuse_used_address(address: str) -> None:
    """Raise UserError if the address is in use."""
    host, port = split_address(address)
    try:
        family, kind, _, _, found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(found)
            probe.listen(1)
    except OSError as error:
        raise UserError(f"gateway.address: cannot listen on {address}: {error.strerror or error}") from None
