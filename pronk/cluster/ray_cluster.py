"""Attendants as Ray's actors: Ray finds each a machine with room for it, and tells when that machine is gone."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pronk.cluster.attendant import Attendant
from pronk.cluster.base import Event, Job
from pronk.cluster.launching import Say, launch
from pronk.cluster.members import Post
from pronk.config import Config
from pronk.config.named import import_extra
from pronk.sinks import Sink
from pronk.transport.security import split_address
from pronk.types import UserError

CONNECT_SECONDS = 10.0
ASK_SECONDS = 0.25  # between an answer of an attendant and the next question
END_SECONDS = 5.0  # for a process to go in order
LOOK_SECONDS = 2.0  # between two looks at how large the cluster is


def train_on_ray(
    config: Config, *, run_dir: Path | None, name: str, resume: bool, display: Sink | None, say: Say
) -> dict[str, Any]:
    """Train where the cluster has room; gives back what `summary.json` holds."""
    import_extra("ray", "cluster=ray", "ray")
    with cluster(config.cluster.address) as resources:
        room = Room(config, resources)
        if room.for_actors() < 1:
            say(f"Ray has {resources().get('CPU', 0):g} cores, none for an actor beside the learners: waiting for more")
        if config.learner.threads == "auto":
            config = config.replace({"learner.threads": max(1, int(config.cluster.learner_cpus))})
        return launch(
            config,
            room.learners,
            [],
            run_dir=run_dir,
            name=name,
            resume=resume,
            display=display,
            say=say,
            more=room.more,
        )


@contextlib.contextmanager
def cluster(address: str | None) -> Iterator[Callable[[], dict[str, float]]]:
    """Connected to the cluster; gives what asks for its resources. One that is new here ends with the block."""
    import ray

    ours = not ray.is_initialized()
    if ours:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what a process without GPUs sees stays ours
        try:
            if address and address != "auto":  # Ray would try for minutes
                socket.create_connection(split_address(address.removeprefix("ray://")), CONNECT_SECONDS).close()
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, OSError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise UserError(f"cluster.address: no Ray cluster at {address or 'hand'}: {reason}") from None
    try:
        yield ray.cluster_resources
    finally:
        if ours:
            ray.shutdown()


class Room:
    """What the cluster has room for."""

    def __init__(self, config: Config, resources: Callable[[], dict[str, float]]) -> None:
        self._settings, self._wanted, self._resources = config.cluster, config.actors.count, resources
        self._learners = 1 if config.learners.count == "auto" else config.learners.count
        self._looked = -LOOK_SECONDS
        gpus = self._settings.learner_gpus
        if gpus == "auto":
            enough = resources().get("GPU", 0) >= self._learners and config.learner.device != "cpu"
            gpus = 1.0 if enough else 0.0
        learner = {"num_cpus": self._settings.learner_cpus, "num_gpus": gpus}
        # Learner 0 writes the run directory: on this machine, if that is large enough for it.
        first = Post("Ray", lambda: OnRay(learner, this_node_for(learner)))
        self.learners = [first, *(Post("Ray", lambda: OnRay(learner)) for _ in range(self._learners - 1))]

    def for_actors(self) -> int:
        """How many fit beside the learners, or how many are wanted."""
        if self._wanted != "auto":
            return self._wanted
        left = self._resources().get("CPU", 0) - self._learners * self._settings.learner_cpus
        return int(left / self._settings.actor_cpus)

    def more(self, count: int) -> list[Post]:
        """Posts beyond the `count` that there are. Machines that left keep theirs, for those that come."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return []
        self._looked = time.monotonic()
        needs = {"num_cpus": self._settings.actor_cpus, "num_gpus": 0}
        return [Post("Ray", lambda: OnRay(needs)) for _ in range(self.for_actors() - count)]


class Attending(Attendant):
    """The attendant inside one of Ray's workers."""

    def here(self) -> Event:
        """With the machine's address, which Ray alone knows."""
        import ray

        event = super().here()
        event["here"]["host"] = ray.util.get_node_ip_address()
        node = ray.get_runtime_context().get_node_id()
        event["here"]["place"] = f"{event['here']['host']} ({node[:6]})"
        return event


def this_node_for(needs: dict[str, float]) -> str | None:
    """This machine's node, if it could ever hold that."""
    import ray

    here = ray.get_runtime_context().get_node_id()
    has: dict[str, float] = next((node["Resources"] for node in ray.nodes() if node["NodeID"] == here), {})
    return here if has.get("CPU", 0) >= needs["num_cpus"] and has.get("GPU", 0) >= needs["num_gpus"] else None


class OnRay:
    """One of Ray's actors per process."""

    def __init__(self, needs: dict[str, float], node: str | None = None) -> None:
        """`node`: where it is to run, if that still exists."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        options: dict[str, Any] = {**needs, "max_restarts": 0}
        if node:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=True)
        remote: Any = ray.remote(Attending)
        self._actor = remote.options(**options).remote(os.getcwd())
        self._question = self._actor.here.remote()
        self._answered = 0.0
        self._is_there = self._ended = False

    def start(self, job: Job) -> None:
        """See `Attended`."""
        self._question = self._actor.start.remote(job.plain())

    def events(self) -> list[Event]:
        """See `Attended`."""
        import ray

        if self._ended:
            return []
        if self._question is None:
            if time.monotonic() - self._answered < ASK_SECONDS:
                return []
            self._question = self._actor.events.remote()
        if not ray.wait([self._question], timeout=0)[0]:
            return []
        try:
            answer = ray.get(self._question)
        except ray.exceptions.RayError as error:
            self._ended = True
            return [{"lost": str(error).strip().splitlines()[-1]}]
        happened = answer if isinstance(answer, list) else [answer] if answer else []
        self._is_there = True
        self._ended = any("exit" in event for event in happened)
        self._question, self._answered = None, time.monotonic()
        return happened

    def stop(self) -> None:
        """See `Attended`."""
        self._actor.stop.remote()

    def drop(self) -> None:
        """See `Attended`. The process ends with its attendant."""
        import ray

        with contextlib.suppress(Exception):
            if self._is_there and not self._ended:
                ray.get(self._actor.end.remote(END_SECONDS), timeout=2 * END_SECONDS)
            ray.kill(self._actor)
        self._ended = True
