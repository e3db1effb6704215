"""The command of each process of a run on other machines."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pronk.cluster.credentials import SERVER_NAME, RunCredentials
from pronk.cluster.process_runner import FILES, FILES_VARIABLE
from pronk.config import Config, load_config
from pronk.config.trees import flat
from pronk.processes.messages import RunCommand
from pronk.transport.security import TOKEN_VARIABLE, is_loopback
from pronk.types import UserError

EVERYWHERE, LOOPBACK = "0.0.0.0", "127.0.0.1"
CERTIFICATE, PRIVATE_KEY, CONFIG = "certificate.pem", "key.pem", "run.yaml"


@dataclass(frozen=True)
class LearnerHost:
    """The machine of one learner."""

    host: str
    """Name at which actors and other learners reach it."""
    free_port: int
    cores: int
    actors: int
    """Actors that run on the same machine."""
    local_rank: int
    """Number of this learner among those of the same machine."""
    local_learners: int
    devices: str | None = None


def changed_since(run: Path, config: Config) -> list[str]:
    """Return overrides that turn a run's recorded configuration into this one, without what belongs to a machine."""
    before, now = (flat(each.without_host().model_dump()) for each in (load_config(run / "config.yaml"), config))
    return [f"{key}={json.dumps(value)}" for key, value in now.items() if value != before.get(key)]


class Plan:
    """Makes the commands of all learners and actors from one configuration."""

    def __init__(self, config: Config, credentials: RunCredentials, run: str, marker: str, resume: bool) -> None:
        """`run` is the run directory on the machine of learner 0."""
        given = config.gateway
        if given.certificate or given.private_key or given.client_ca or given.token_file:
            raise UserError(
                "training on other machines makes a certificate and a token by itself; drop gateway.certificate, "
                "gateway.private_key, gateway.client_ca and gateway.token_file"
            )
        if config.transport.name == "local":
            raise UserError("transport=local is one process; other machines need transport=shared_memory")
        self._config, self._credentials, self._run, self._marker = config, credentials, run, marker
        self._resume = resume
        self._overrides = changed_since(Path(run), config) if resume else []

    def learner(self, rank: int, hosts: list[LearnerHost], restart: bool) -> RunCommand:
        """Return the command of one learner. `restart`: it has been started before."""
        host = hosts[rank]
        environment = {TOKEN_VARIABLE: self._credentials.token}
        if host.devices is not None:
            environment["CUDA_VISIBLE_DEVICES"] = host.devices
        changes = self._changes(hosts)
        group = [f"learners.count={len(hosts)}"]
        if len(hosts) > 1:
            rendezvous = self._config.learners.address or f"{hosts[0].host}:{hosts[0].free_port}"
            group += [f"learners.rank={rank}", f"learners.address={rendezvous}"]
            environment |= {"LOCAL_RANK": str(host.local_rank), "LOCAL_WORLD_SIZE": str(host.local_learners)}
        changed = [f"{key}={value}" for key, value in changes.items()]
        # The machine that starts the run has checked the code that it names, or its user said --trust.
        resume = ["learner", self._run, "--resume", "--trust", *self._overrides, *changed, *group]
        begin = ["learner", f"{FILES}/{CONFIG}", "--run-dir", self._run, *group]
        config = self._config.replace({"cluster": {}, "learners": {}, **changes})
        first = rank == 0  # has the run directory
        return RunCommand(
            resume if first and self._resume else begin,
            environment,
            {
                CERTIFICATE: self._credentials.certificate,
                PRIVATE_KEY: self._credentials.private_key,
                CONFIG: config.to_yaml(),
            },
            run=self._run if first else None,
            marker=self._marker if first else None,
            resume_arguments=resume if first and restart else None,
        )

    def actor(self, address: str, devices: str | None) -> RunCommand:
        """Return the command of an actor of the learner at this address."""
        environment = {TOKEN_VARIABLE: self._credentials.token, "CUDA_VISIBLE_DEVICES": devices or ""}
        arguments = ["actor", address, "--ca", f"{FILES}/{CERTIFICATE}", "--server-name", SERVER_NAME]
        return RunCommand(arguments, environment, {CERTIFICATE: self._credentials.certificate})

    def _changes(self, hosts: list[LearnerHost]) -> dict[str, Any]:
        """Return what a learner on another machine needs besides the user's configuration."""
        local = all(is_loopback(one.host) for one in hosts)
        changes: dict[str, Any] = {
            "gateway.address": self._config.gateway.address or f"{LOOPBACK if local else EVERYWHERE}:0",
            "gateway.certificate": f"${FILES_VARIABLE}/{CERTIFICATE}",
            "gateway.private_key": f"${FILES_VARIABLE}/{PRIVATE_KEY}",
            "actors.count": 0,
        }
        if len(hosts) == 1 and self._config.learner.threads == "auto":
            changes["learner.threads"] = max(1, hosts[0].cores - hosts[0].actors)
        return changes
