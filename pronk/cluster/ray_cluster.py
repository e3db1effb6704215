"""Processes on a Ray cluster: Ray finds each a node with room for it, and reports when that node is lost."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pronk.cluster.base import Placement
from pronk.cluster.cluster_run import train_on_cluster
from pronk.cluster.process_runner import ProcessRunner
from pronk.config import Config
from pronk.config.named import import_extra
from pronk.processes.messages import Exited, Message, RunCommand, RunnerLost, decode, encode
from pronk.sinks import Sink
from pronk.transport.security import split_address
from pronk.types import UserError

CONNECT_SECONDS = 10.0
POLL_SECONDS = 0.25  # between a reply of a runner and the next request
END_SECONDS = 5.0  # for a process to save its work
RESIZE_SECONDS = 2.0  # between two checks of the size of the cluster


def train_on_ray(
    config: Config,
    *,
    run_dir: Path | None,
    name: str,
    resume: bool,
    display: Sink | None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Train on a Ray cluster, and return what `summary.json` holds. Raises what `train_on_cluster` raises."""
    import_extra("ray", "cluster=ray", "ray")
    with connected(config.cluster.address) as resources:
        capacity = Capacity(config, resources)
        if capacity.actors() < 1:
            say(f"Ray has {resources().get('CPU', 0):g} cores, none for an actor beside the learners: waiting for more")
        if config.learner.threads == "auto":
            config = config.replace({"learner.threads": max(1, int(config.cluster.learner_cpus))})
        return train_on_cluster(
            config,
            capacity.learners,
            [],
            run_dir=run_dir,
            name=name,
            resume=resume,
            display=display,
            say=say,
            more_actors=capacity.more_actors,
        )


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[Callable[[], dict[str, float]]]:
    """Connect to a cluster, or start one that ends with the block. Yields a function that returns its resources."""
    import ray

    is_new = not ray.is_initialized()
    if is_new:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault(
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0"
        )  # else Ray hides GPUs from processes that asked for none
        try:
            if address and address != "auto":  # Ray would try for minutes
                socket.create_connection(split_address(address.removeprefix("ray://")), CONNECT_SECONDS).close()
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, OSError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            where = f"at cluster.address={address}" if address else "here"
            raise UserError(
                f"no running Ray cluster found {where} ({reason}); start one with `ray start --head`, or drop "
                "cluster.address"
            ) from None
    try:
        yield ray.cluster_resources
    finally:
        if is_new:
            ray.shutdown()


class Capacity:
    """How many learners and actors the cluster has room for."""

    def __init__(self, config: Config, resources: Callable[[], dict[str, float]]) -> None:
        self._settings, self._wanted, self._resources = config.cluster, config.actors.count, resources
        self._learners = 1 if config.learners.count == "auto" else config.learners.count
        self._checked_at = -RESIZE_SECONDS
        gpus = self._settings.learner_gpus
        if gpus == "auto":
            enough = resources().get("GPU", 0) >= self._learners and config.learner.device != "cpu"
            gpus = 1.0 if enough else 0.0
        needs = {"num_cpus": self._settings.learner_cpus, "num_gpus": gpus}
        # Learner 0 writes the run directory: on this machine, if it is large enough.
        first = Placement("Ray", lambda: RayProcess(needs, this_node_for(needs)))
        self.learners = [first, *(Placement("Ray", lambda: RayProcess(needs)) for _ in range(self._learners - 1))]

    def actors(self) -> int:
        """Return actors.count, or if that is `auto`, how many fit beside the learners."""
        if self._wanted != "auto":
            return self._wanted
        left = self._resources().get("CPU", 0) - self._learners * self._settings.learner_cpus
        return int(left / self._settings.actor_cpus)

    def more_actors(self, count: int) -> list[Placement]:
        """Return placements for further actors, if more than `count` fit. Actors of a lost node wait for a new node."""
        if time.monotonic() - self._checked_at < RESIZE_SECONDS:
            return []
        self._checked_at = time.monotonic()
        needs = {"num_cpus": self._settings.actor_cpus, "num_gpus": 0}
        return [Placement("Ray", lambda: RayProcess(needs)) for _ in range(self.actors() - count)]


def this_node_for(needs: dict[str, float]) -> str | None:
    """Return this machine's node, if it is large enough."""
    import ray

    here = ray.get_runtime_context().get_node_id()
    has: dict[str, float] = next((node["Resources"] for node in ray.nodes() if node["NodeID"] == here), {})
    return here if has.get("CPU", 0) >= needs["num_cpus"] and has.get("GPU", 0) >= needs["num_gpus"] else None


class RayRunner:
    """A `ProcessRunner` inside a Ray actor. Messages travel as JSON lines, so that Ray pickles no class of Pronk's."""

    def __init__(self, folder: str) -> None:
        self._runner = ProcessRunner(folder)

    def ready(self) -> list[bytes]:
        """Return `RunnerReady` with the node's address, which only Ray knows."""
        import ray

        host, node = ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id()
        return [encode(replace(self._runner.ready(), host=host, label=f"{host} ({node[:6]})"))]

    def run(self, command: bytes) -> list[bytes]:
        message = decode(command)
        assert isinstance(message, RunCommand)
        self._runner.run(message)
        return []

    def messages(self) -> list[bytes]:
        return [encode(message) for message in self._runner.messages()]

    def stop(self) -> None:
        self._runner.stop()

    def end(self, grace_seconds: float) -> None:
        self._runner.end(grace_seconds)


class RayProcess:
    """A process that a Ray actor runs; see `RemoteProcess`."""

    def __init__(self, needs: dict[str, float], node: str | None = None) -> None:
        """`node`: where to run it, if that node still exists."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        options: dict[str, Any] = {**needs, "max_restarts": 0}
        if node:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=True)
        remote: Any = ray.remote(RayRunner)
        self._actor = remote.options(**options).remote(os.getcwd())
        self._reply = self._actor.ready.remote()
        self._replied_at = 0.0
        self._is_placed = self._ended = False

    def run(self, command: RunCommand) -> None:
        """See `RemoteProcess`."""
        self._reply = self._actor.run.remote(encode(command))

    def receive(self) -> list[Message]:
        """See `RemoteProcess`."""
        import ray

        if self._ended:
            return []
        if self._reply is None:
            if time.monotonic() - self._replied_at < POLL_SECONDS:
                return []
            self._reply = self._actor.messages.remote()
        if not ray.wait([self._reply], timeout=0)[0]:
            return []
        try:
            messages = [decode(line) for line in ray.get(self._reply)]
        except ray.exceptions.RayError as error:
            messages = [RunnerLost(str(error).strip().splitlines()[-1])]
        else:
            self._is_placed = True
        self._ended = any(isinstance(message, Exited | RunnerLost) for message in messages)
        self._reply, self._replied_at = None, time.monotonic()
        return messages

    def stop(self) -> None:
        """See `RemoteProcess`."""
        self._actor.stop.remote()

    def close(self) -> None:
        """See `RemoteProcess`."""
        import ray

        with contextlib.suppress(Exception):  # the node may be gone
            if self._is_placed and not self._ended:
                ray.get(self._actor.end.remote(END_SECONDS), timeout=2 * END_SECONDS)
            ray.kill(self._actor)
        self._ended = True
