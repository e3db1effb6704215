"""Knobs of a machine, not of an experiment: addresses, TLS files, cores of a cluster.

They are given on the command line or in a file, and are never written into a run: its config.yaml is valid on any
machine and can be shared. A resumed run needs them again.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pronk.config.section import Auto, NonNegative, PositiveFloat, Section


class GatewayConfig(Section):
    """Where actors of other machines join this learner, and what they must show."""

    address: str | None = None
    """HOST:PORT to listen on, so that `pronk actor HOST:PORT` can join from any machine at any time. Port 0 takes a
    free one. Further learners of the same machine use the ports after it. null (default): do not listen."""
    certificate: str | None = None
    """PEM file with this learner's certificate. Turns TLS on."""
    private_key: str | None = None
    """PEM file with the private key of the certificate."""
    client_ca: str | None = None
    """PEM file with certificate authorities; an actor must then show a certificate signed by one of them. null
    (default): a token is enough."""
    token_file: str | None = None
    """File with the token that actors must show. null (default): the environment variable PRONK_TOKEN, if it is set."""
    insecure: bool = False
    """Allow listening on an address that other machines can reach without TLS or without a token."""
    max_actors: Annotated[int, Field(gt=0, le=100_000)] | Auto = "auto"
    """Most actors of other machines at a time. `auto`: 1,024, or fewer if their unrolls would need more than half of
    this machine's memory."""
    keepalive_seconds: Annotated[float, Field(ge=1, le=600)] = 8.0
    """Seconds of silence after which the other side is pinged; after as many again without an answer the connection
    counts as lost. The default notices a dead network within 16 seconds."""


class ClusterConfig(Section):
    """Where the learners and actors of a run are started."""

    name: Literal["local", "ray"] = "local"
    """`local`: on this machine. `ray`: wherever a Ray cluster has room; needs `pip install 'pronk[ray]'`. For a list of
    machines over SSH there is the command `pronk launch`."""
    address: str | None = None
    """Address of the Ray cluster: HOST:PORT, or `auto` for the one this machine belongs to. null (default): the one
    that RAY_ADDRESS names or that runs on this machine; if there is none, Ray is started here."""
    learner_cpus: PositiveFloat = 1.0
    """Cores that Ray reserves for each learner. Also its number of threads, if learner.threads is `auto`."""
    learner_gpus: NonNegative | Auto = "auto"
    """GPUs that Ray reserves for each learner. `auto`: one if the cluster has enough and learner.device is not
    `cpu`."""
    actor_cpus: PositiveFloat = 1.0
    """Cores that Ray reserves for each actor. With actors.count=auto there are as many actors as the cluster has room
    for, and more when it grows."""
