"""What each process of a fleet is told to do."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pronk.cluster.base import FILES, FILES_VARIABLE, Job
from pronk.cluster.keys import SERVER_NAME, Keys
from pronk.config import Config, load_config
from pronk.config.trees import flat
from pronk.transport.security import TOKEN_VARIABLE, is_loopback
from pronk.types import UserError

EVERYWHERE, LOOPBACK = "0.0.0.0", "127.0.0.1"
CERTIFICATE, PRIVATE_KEY, CONFIG = "certificate.pem", "key.pem", "run.yaml"


@dataclass(frozen=True)
class Seat:
    """Where one learner is: known once its attendant is there."""

    host: str
    """As actors and other learners reach it."""
    free_port: int
    cores: int
    actors_beside: int
    rank_here: int
    count_here: int
    devices: str | None = None


def changed_since(run: Path, config: Config) -> list[str]:
    """Return overrides that turn a run's recorded configuration into this one, without what belongs to a machine."""
    before, now = (flat(each.without_host().model_dump()) for each in (load_config(run / "config.yaml"), config))
    return [f"{key}={json.dumps(value)}" for key, value in now.items() if value != before.get(key)]


class Plan:
    """From one configuration to the jobs of all learners and actors."""

    def __init__(self, config: Config, keys: Keys, run: str, marker: str, resume: bool) -> None:
        """`run` is the run directory on the learners' machines."""
        given = config.gateway
        if given.certificate or given.private_key or given.client_ca or given.token_file:
            raise UserError("a fleet makes a certificate and a token of its own; leave out those of gateway")
        if config.transport.name == "local":
            raise UserError("transport=local is one process; a fleet needs transport=shared_memory")
        self._config, self._keys, self._run, self._marker = config, keys, run, marker
        self._resume = resume
        self._overrides = changed_since(Path(run), config) if resume else []

    def learner(self, rank: int, seats: list[Seat], again: bool) -> Job:
        """One of `seats`. `again`: it has been started before."""
        seat = seats[rank]
        environment = {TOKEN_VARIABLE: self._keys.token}
        if seat.devices is not None:
            environment["CUDA_VISIBLE_DEVICES"] = seat.devices
        changes = self._changes(seats)
        group = [f"learners.count={len(seats)}"]
        if len(seats) > 1:
            meeting = self._config.learners.address or f"{seats[0].host}:{seats[0].free_port}"
            group += [f"learners.rank={rank}", f"learners.address={meeting}"]
            environment |= {"LOCAL_RANK": str(seat.rank_here), "LOCAL_WORLD_SIZE": str(seat.count_here)}
        changed = [f"{key}={value}" for key, value in changes.items()]
        go_on = ["learner", self._run, "--resume", *self._overrides, *changed, *group]
        begin = ["learner", f"{FILES}/{CONFIG}", "--run-dir", self._run, *group]
        config = self._config.replace({"cluster": {}, "learners": {}, **changes})
        files = {CERTIFICATE: self._keys.certificate, PRIVATE_KEY: self._keys.private_key, CONFIG: config.to_yaml()}
        first = rank == 0
        return Job(
            go_on if first and self._resume else begin,
            environment,
            files,
            run=self._run if first else None,
            marker=self._marker if first else None,
            go_on=go_on if first and again else None,
        )

    def actor(self, address: str, devices: str | None) -> Job:
        """One that plays for the learner at this address."""
        environment = {TOKEN_VARIABLE: self._keys.token, "CUDA_VISIBLE_DEVICES": devices or ""}
        arguments = ["actor", address, "--ca", f"{FILES}/{CERTIFICATE}", "--server-name", SERVER_NAME]
        return Job(arguments, environment, {CERTIFICATE: self._keys.certificate})

    def _changes(self, seats: list[Seat]) -> dict[str, Any]:
        """Of the configuration, on top of the user's."""
        nearby = all(is_loopback(seat.host) for seat in seats)
        changes: dict[str, Any] = {
            "gateway.address": self._config.gateway.address or f"{LOOPBACK if nearby else EVERYWHERE}:0",
            "gateway.certificate": f"${FILES_VARIABLE}/{CERTIFICATE}",
            "gateway.private_key": f"${FILES_VARIABLE}/{PRIVATE_KEY}",
            "actors.count": 0,
        }
        if len(seats) == 1 and self._config.learner.threads == "auto":
            changes["learner.threads"] = max(1, seats[0].cores - seats[0].actors_beside)
        return changes
