"""Which learner this process is, and where it finds learner 0."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import ValidationError

from pronk.config import Rank, plain_yaml
from pronk.config.knobs import LearnersConfig
from pronk.config.trees import assign
from pronk.types import UserError


@dataclass(frozen=True)
class Rendezvous(Rank):
    """The rank of this learner, and the address of learner 0."""

    host: str = ""
    """Of learner 0. Empty: learner 0 starts the others, on this machine."""
    port: int = 0
    listens: bool = True
    """Whether learner 0 listens there; with torchrun its agent does."""


def find_rendezvous(settings: LearnersConfig, environment: Mapping[str, str] = os.environ) -> Rendezvous:
    """Return the rendezvous from the configuration or, where that does not say, from torchrun's variables."""
    launched = environment.get("RANK", "").isdigit() and environment.get("WORLD_SIZE", "").isdigit()
    world = int(environment["WORLD_SIZE"]) if launched else 1
    launched = world > 1
    count = world if settings.count == "auto" else settings.count
    if launched and count != world:
        raise UserError(
            f"learners.count={count}, but WORLD_SIZE={world} in the environment: start {count} processes, or add "
            f"learners.count={world}"
        )
    if settings.rank is None and not launched:
        if settings.address is not None:
            raise UserError(f"learners.address={settings.address} needs learners.rank, the number of this learner")
        return Rendezvous(0, count, 0, count)
    if count == 1 and settings.count == "auto":
        raise UserError(f"learners.rank={settings.rank} needs learners.count, the number of all learners")
    if count == 1:
        return Rendezvous()
    rank = int(environment["RANK"]) if settings.rank is None else settings.rank
    if rank >= count:
        raise UserError(f"learners.rank={rank} must be below learners.count={count}: the first learner is 0")
    host, port = address_of(settings, environment, rank)
    agent = settings.address is None and environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    rank_here, count_here = int(environment.get("LOCAL_RANK", 0)), int(environment.get("LOCAL_WORLD_SIZE", 1))
    return Rendezvous(rank, count, rank_here, count_here, host, port, not agent)


def rendezvous_in(overrides: list[str], environment: Mapping[str, str] = os.environ) -> Rendezvous:
    """Return the rendezvous from the command line alone: only learner 0's machine may have the run's configuration."""
    tree: dict[str, Any] = {}
    for override in overrides:
        path, _, text = override.partition("=")
        if path.partition(".")[0] == "learners":
            assign(tree, path, plain_yaml.parse(text))
    try:
        return find_rendezvous(LearnersConfig.model_validate(tree.get("learners", {})), environment)
    except (ValidationError, yaml.YAMLError) as error:
        raise UserError(f"learners: {' '.join(str(error).split())}") from None


def address_of(settings: LearnersConfig, environment: Mapping[str, str], rank: int) -> tuple[str, int]:
    """Return host and port of learner 0."""
    if settings.address is not None:
        host, colon, port = settings.address.rpartition(":")
        key = f"learners.address={settings.address}"
    else:
        host, port = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")
        colon, key = ":", "MASTER_ADDR and MASTER_PORT"
        if not host and not port:
            raise UserError(f"learner {rank} needs learners.address=HOST:PORT, the address of learner 0")
    if not host or not colon or not port.isdigit() or not 0 < int(port) < 65536:
        raise UserError(f"{key} must be HOST:PORT, such as learners.address=10.0.0.1:29500")
    return host.strip("[]"), int(port)
