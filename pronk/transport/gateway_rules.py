"""What the gateway's server allows: the run's rules, the port's credentials, and gRPC's limits."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Any

import grpc

from pronk.layout import UnrollLayout
from pronk.transport.frames import HEADER, MAX_JSON_BYTES, stream_options
from pronk.transport.security import Credentials

HANDSHAKE_SECONDS = 10.0  # for a new connection to finish its handshake
IDLE_SECONDS = 30.0  # after which a connection without a stream is closed
SPARE_CONNECTIONS = 2048  # besides those of actors: half-open ones must not keep an actor out
IDLE_CONNECTIONS = 512  # of the spare ones, that may have no call


@dataclass(frozen=True)
class Rules:
    """What the gateway needs to know of the run."""

    layout: UnrollLayout
    parameters_nbytes: int
    slots: int
    max_actors: int
    first_index: int
    """Actors are numbered from here; the learner's own have the numbers before."""
    life: int
    """How many gateway processes this run had before."""
    welcome: dict[str, Any]
    """Content of WELCOME."""
    parameters_dtype: str
    timeout_seconds: float
    keepalive_seconds: float
    credentials: Credentials
    inner_token: str
    """Token of the learner's own actors, which bring their number with them."""
    open: bool = True
    """Whether actors other than the learner's own may join."""


def bind(server: Any, address: str, credentials: Credentials) -> int:
    """Add the port, and return its number."""
    if credentials.certificate is None:
        return server.add_insecure_port(address)
    tls = grpc.ssl_server_credentials(
        [(credentials.private_key, credentials.certificate)],
        credentials.authority,
        require_client_auth=credentials.authority is not None,
    )
    return server.add_secure_port(address, tls)


def server_options(rules: Rules) -> list[tuple[str, int]]:
    """Return gRPC's settings, with limits on all that a hostile client could use up."""
    return [
        *stream_options(rules.keepalive_seconds),
        ("grpc.so_reuseport", 0),  # two learners on one port would each get half of the actors
        ("grpc.max_receive_message_length", max(MAX_JSON_BYTES, HEADER.size + rules.layout.nbytes)),
        ("grpc.max_concurrent_streams", 2),
        ("grpc.server_max_unrequested_time_in_server", 600),  # hundreds may join at once
        ("grpc.max_allowed_incoming_connections", rules.max_actors + SPARE_CONNECTIONS),
        ("grpc.server_handshake_timeout_ms", int(1000 * HANDSHAKE_SECONDS)),
        ("grpc.max_connection_idle_ms", int(1000 * IDLE_SECONDS)),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
        ("grpc.http2.max_ping_strikes", 0),
    ]


def most_idle(rules: Rules) -> int:
    """Return how many connections may have no call. All actors may connect at once, before their calls are read."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = rules.max_actors + IDLE_CONNECTIONS
    return wanted if descriptors == resource.RLIM_INFINITY else min(wanted, descriptors // 2)
