"""Which learner this process is, and where learner 0 is to be found."""

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
class Place(Rank):
    """Which learner of how many, and where learner 0 is."""

    host: str = ""
    """Of learner 0. Empty: this process starts the others."""
    port: int = 0
    port_is_ours: bool = True
    """Whether learner 0 has to listen there; torchrun's agent may do so already."""


def find_place(settings: LearnersConfig, environment: Mapping[str, str] = os.environ) -> Place:
    """From the configuration or, where that is silent, from what torchrun or the like has set."""
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
            raise UserError(f"learners.address={settings.address} needs learners.rank: which learner is this?")
        return Place(0, count, 0, count)
    if count == 1 and settings.count == "auto":
        raise UserError(f"learners.rank={settings.rank} needs learners.count: how many learners are there?")
    if count == 1:
        return Place()
    rank = int(environment["RANK"]) if settings.rank is None else settings.rank
    if rank >= count:
        raise UserError(f"learners.rank={rank} must be below learners.count={count}: the first learner is 0")
    host, port = address_of(settings, environment, rank)
    agent = settings.address is None and environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    rank_here, count_here = int(environment.get("LOCAL_RANK", 0)), int(environment.get("LOCAL_WORLD_SIZE", 1))
    return Place(rank, count, rank_here, count_here, host, port, not agent)


def place_in(overrides: list[str], environment: Mapping[str, str] = os.environ) -> Place:
    """From the command line alone: a run that goes on may have its configuration on learner 0's machine only."""
    tree: dict[str, Any] = {}
    for override in overrides:
        path, _, text = override.partition("=")
        if path.partition(".")[0] == "learners":
            assign(tree, path, plain_yaml.parse(text))
    try:
        return find_place(LearnersConfig.model_validate(tree.get("learners", {})), environment)
    except (ValidationError, yaml.YAMLError) as error:
        raise UserError(f"learners: {' '.join(str(error).split())}") from None


def address_of(settings: LearnersConfig, environment: Mapping[str, str], rank: int) -> tuple[str, int]:
    """Where learner 0 is."""
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
