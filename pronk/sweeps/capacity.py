"""Where the members of a sweep run: here or on a Ray cluster; how many at a time, with how many cores each."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pronk.cluster.base import Placement
from pronk.cluster.process_runner import ProcessRunner
from pronk.config import Config, available_cores, memory_bytes, resolve
from pronk.config.named import import_extra
from pronk.config.resolved import check_resolved
from pronk.processes.messages import Message, RunCommand
from pronk.types import UserError

END_SECONDS = 10.0  # for a member to end, after it was asked to
MEMORY = 2**30  # bytes that a member needs at least: a learner, an actor, and PyTorch in both


@dataclass(frozen=True)
class Capacity:
    """Where members run, how many at a time, and with how many cores."""

    placement: Placement
    at_a_time: int
    cores: int | None
    """Of each member, to divide a machine's cores among several; None: whatever its configuration says."""

    def config_for(self, config: Config) -> Config:
        """Return a member's configuration for where it runs, with its share of the cores."""
        config = config.replace({"cluster": {}})
        return config if self.cores is None else with_cores(config, self.cores)


class LocalProcess:
    """A member on this machine; see `RemoteProcess`."""

    def __init__(self) -> None:
        self._runner = ProcessRunner(os.getcwd())
        self._is_new = True

    def run(self, command: RunCommand) -> None:
        """See `RemoteProcess`."""
        self._runner.run(command)

    def receive(self) -> list[Message]:
        """See `RemoteProcess`."""
        if self._is_new:
            self._is_new = False
            return [self._runner.ready()]
        return self._runner.messages()

    def stop(self) -> None:
        """See `RemoteProcess`."""
        self._runner.stop()

    def close(self) -> None:
        """See `RemoteProcess`."""
        if not self._runner.ended:
            self._runner.end(END_SECONDS)


@contextlib.contextmanager
def capacity_for(configs: Sequence[Config], members: int, at_a_time: int | None) -> Iterator[Capacity]:
    """Find room for members with these configurations.

    Args:
        configs: some or all of them.
        members: how many there are to run.
        at_a_time: how many at the same time; None: as many as keep the cores busy.
    """
    if configs[0].cluster.name == "local":
        yield local_capacity(configs, members, at_a_time)
        return
    import_extra("ray", "cluster=ray", "ray")
    from pronk.cluster.ray_cluster import RayProcess, connected

    settings = configs[0].cluster
    with connected(settings.address) as resources:
        actors = max(cores_of(config) or 1 for config in configs)
        gpus = 0.0 if settings.learner_gpus == "auto" else settings.learner_gpus
        needs = {"num_cpus": settings.learner_cpus + actors * settings.actor_cpus, "num_gpus": gpus}
        if all(config.transport.name == "local" for config in configs):
            needs["num_cpus"] = settings.learner_cpus
        has = resources().get("CPU", 0)
        if has < needs["num_cpus"]:
            raise UserError(
                f"a member needs {needs['num_cpus']:g} cores of the Ray cluster, which has {has:g}: lower "
                "actors.count, cluster.actor_cpus or cluster.learner_cpus"
            )
        room = at_a_time or int(has / needs["num_cpus"])
        yield Capacity(Placement("Ray", lambda: RayProcess(needs)), max(1, min(room, members)), actors)


def local_capacity(configs: Sequence[Config], members: int, at_a_time: int | None) -> Capacity:
    """Share this machine among members: each gets as many cores as its actors use, at least one."""
    cores = available_cores()
    if at_a_time is None:
        busy = max(cores_of(config) or 1 for config in configs)
        at_a_time = max(1, min(cores // busy, memory_bytes() // MEMORY))
    at_a_time = max(1, min(at_a_time, members))
    share = max(1, cores // at_a_time) if at_a_time > 1 else None
    return Capacity(Placement("this machine", LocalProcess), at_a_time, share)


def cores_of(config: Config) -> int | None:
    """Return how many cores a run keeps busy: those of its actors. None: all that it can get."""
    if config.transport.name == "local":
        return 1 if config.learner.threads == "auto" else config.learner.threads
    learners = 1 if config.learners.count == "auto" else config.learners.count
    return None if config.actors.count == "auto" else max(config.actors.count, learners)


def with_cores(config: Config, cores: int) -> Config:
    """Return a configuration whose automatic numbers of actors and threads fit into so many cores."""
    if config.transport.name == "local":
        return config
    if config.actors.count == "auto":
        config = with_actors(config, cores)
    if config.learner.threads == "auto":
        actors = math.inf if config.actors.count == "auto" else config.actors.count
        config = config.replace({"learner.threads": int(max(1, cores - actors))})
    return config


def with_actors(config: Config, count: int) -> Config:
    """Return a configuration with so many actors, or unchanged if these could not fill a batch."""
    fewer = config.replace({"actors.count": count})
    try:
        check_resolved(resolve(fewer))
    except UserError:
        return config
    return fewer
