"""Who may join, and who may listen in: addresses, the shared token, TLS.

On this machine's own address (loopback) everything is allowed. On any other the learner wants a certificate and a
token, or to be told plainly that it may do without. The token comes from a file or from the environment, lives in
memory, and is neither printed nor saved.
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
class Pass:
    """What one side shows the other. Kept out of `repr`, so that no traceback or log can show it."""

    token: str | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    private_key: bytes | None = field(default=None, repr=False)
    authority: bytes | None = field(default=None, repr=False)
    """Whose signature on the other's certificate is trusted. For an actor, empty means those that the system trusts."""
    server_name: str | None = None
    """What the learner's certificate says, where that is not the address."""

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.certificate is not None or self.authority is not None


def learner_pass(config: GatewayConfig) -> tuple[Pass, list[str]]:
    """The learner's, and warnings. Raises where an address needs more safety than there is."""
    host, _ = split_address(str(config.address))
    if (config.certificate is None) != (config.private_key is None):
        raise UserError("gateway.certificate and gateway.private_key belong together; only one of them is set")
    if config.client_ca and not config.certificate:
        raise UserError("gateway.client_ca asks actors for certificates, which needs gateway.certificate as well")
    shown = Pass(
        token=read_token(config.token_file, "gateway.token_file"),
        certificate=read_file(config.certificate, "gateway.certificate"),
        private_key=read_file(config.private_key, "gateway.private_key"),
        authority=read_file(config.client_ca, "gateway.client_ca"),
    )
    lacking = [
        *([] if shown.certificate else ["TLS (gateway.certificate and gateway.private_key)"]),
        *([] if shown.token else [f"a token (gateway.token_file or ${TOKEN_VARIABLE})"]),
    ]
    if is_loopback(host) or not lacking:
        return shown, []
    if not config.insecure:
        raise UserError(
            f"gateway.address={config.address} can be reached by other machines, so it needs "
            f"{' and '.join(lacking)}; gateway.insecure=true goes without"
        )
    return shown, [f"gateway.insecure: {config.address} can be reached by other machines without {lacking[0]}"]


def actor_pass(
    address: str,
    token_file: Path | None = None,
    ca: Path | None = None,
    certificate: Path | None = None,
    private_key: Path | None = None,
    insecure: bool = False,
    server_name: str | None = None,
) -> Pass:
    """The actor's. To another machine it speaks TLS unless told otherwise: the token would travel in the clear."""
    host, port = split_address(address)
    if port == 0:
        raise UserError(f"{address}: which port? `pronk learner` says it when it listens")
    if (certificate is None) != (private_key is None):
        raise UserError("--cert and --key belong together; only one of them is given")
    if insecure and ca:
        raise UserError("--insecure and --ca contradict one another")
    authority = read_file(ca, "--ca")
    if authority is None and not insecure and (certificate or not is_loopback(host)):
        authority = b""
    return Pass(
        token=read_token(token_file, "--token-file"),
        certificate=read_file(certificate, "--cert"),
        private_key=read_file(private_key, "--key"),
        authority=authority,
        server_name=server_name,
    )


def same_token(shown: Any, wanted: str) -> bool:
    """Compared in constant time."""
    shown = shown if isinstance(shown, bytes) else str(shown).encode(errors="replace")
    return hmac.compare_digest(shown, wanted.encode())


def read_token(path: str | Path | None, key: str) -> str | None:
    """From the file, else from the environment; None where there is neither."""
    content = read_file(path, key)
    token = content.decode(errors="replace").strip() if content is not None else os.environ.get(TOKEN_VARIABLE, "")
    where = f"{key}: {path}" if path else f"${TOKEN_VARIABLE}"
    if content is not None and not token:
        raise UserError(f"{where} is empty; it should hold the token")
    if token and not (token.isascii() and token.isprintable() and len(token) <= 1024):
        raise UserError(f"{where} does not hold a token: one line of at most 1,024 plain letters and digits")
    return token or None


def read_file(path: str | Path | None, key: str) -> bytes | None:
    """The content of a small file that the user named, with `~` and `$VARIABLES`."""
    if path is None:
        return None
    try:
        return Path(os.path.expandvars(path)).expanduser().read_bytes()
    except OSError as error:
        raise UserError(f"{key}: cannot read {path}: {error.strerror}") from None


def split_address(address: str) -> tuple[str, int]:
    """`HOST:PORT`, the host of an IPv6 address in brackets."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise UserError(f"{address!r} is not an address; write HOST:PORT, such as 127.0.0.1:5050")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_gateway(config: ResolvedConfig) -> None:
    """Raise UserError for what would keep the gateway from starting, before anything is started."""
    if config.has_gateway:
        compressor(config.transport.compression)
    if config.gateway.address is not None:
        learner_pass(config.gateway)
        refuse_used_address(config.gateway.address)


def refuse_used_address(address: str) -> None:
    """Nobody can listen where somebody does."""
    host, port = split_address(address)
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
            probe.listen(1)
    except OSError as error:
        raise UserError(f"gateway.address: cannot listen on {address}: {error.strerror or error}") from None
