"""Measures the costs of a configuration on this machine, in a few seconds per part.

actor, update       in one process per core (`bench/workers.py`), on one core alone and on all at once
gateway, send, pull a real gateway, and a process that sends it unrolls (`sender_process.py`)
exchange            two processes that learn as one (`group_process.py`), compared with one that learns alone
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pronk.config import Config, Rank, ResolvedConfig, available_cores, decided, resolve
from pronk.planning.costs import Costs, Sizes

if TYPE_CHECKING:
    from pronk.layout import UnrollLayout
    from pronk.types import Parameters

Say = Callable[[str], None]

SHARE = 0.25  # of the seconds, for each of four measurements of actor and update
PUBLISH_SECONDS = 0.001  # between two versions while requests for parameters are timed


def learner_config(config: Config, say: Say) -> ResolvedConfig:
    """Return what the first of the configured learners runs with. All learners are on this machine."""
    from pronk.envs.probing import spec_of

    count = 1 if config.learners.count == "auto" else config.learners.count
    return resolve(decided(config, spec_of(config, say)), Rank(0, count, 0, count))


def measure_costs(
    config: ResolvedConfig,
    seconds: float,
    say: Say,
    network: bool = False,
    learners: bool = False,
    learner_rate: float | None = None,
) -> Costs:
    """Return what this machine needs for everything that a training of this configuration does.

    Args:
        config: of one learner.
        seconds: for actors and updates together; the others take a quarter of it each.
        say: gets warnings.
        network: also measure what it takes to send unrolls through a gateway.
        learners: also measure what it takes two learners to act as one.
        learner_rate: steps per second of a learner on another device. Then no update is made here, which may take long.
    """
    from pronk.bench.workers import part_workers
    from pronk.device import choose_device

    cores, part = available_cores(), SHARE * seconds
    threads = config.learner.threads
    device = "given" if learner_rate else choose_device(config.learner.device).type
    learning = 1 if device != "cpu" else max(1, cores // threads)  # processes that keep all cores busy with updates
    sizes, layout, parameters = sizes_of(config)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with part_workers(config, cores, folder, say, whole=True) as workers:
            actor, update = workers.rate("actor", part), learner_rate or workers.rate("update", part, learning)
            alone = [workers.rate("actor", part, 1) / actor]
            if not learner_rate:
                alone.append(workers.rate("update", part, 1) / update)
        costs = Costs(
            cores=cores,
            actor=1 / actor,
            update=1 / update,
            threads=threads,
            device=device,
            crowding=min(1.0, len(alone) / sum(alone)),
            **asdict(sizes),
        )
        if network:
            gateway, send, pull = measure_gateway(config, layout, parameters, folder, part, say)
            costs = replace(costs, gateway=gateway, send=send, pull=pull)
        if learners and not learner_rate:
            alone_seconds = costs.update * sizes.unroll_length * sizes.batch_size
            costs = replace(costs, exchange=max(0.0, measure_group(config, folder, part, say) - alone_seconds))
    return costs


def sizes_of(config: ResolvedConfig) -> tuple[Sizes, UnrollLayout, Parameters]:
    """Return the sizes of messages; also the layout of an unroll, and the first parameters.

    Raises:
        UserError: the environments of an actor do not divide into teams of agents.
    """
    from pronk.actor import specs_for
    from pronk.device import choose_device
    from pronk.envs import make_env
    from pronk.layout import UnrollLayout
    from pronk.learner import Learner
    from pronk.starting import check_teams

    with contextlib.closing(make_env(config, config.actors.envs)) as env:
        spec = env.spec
    check_teams(config, spec)
    learner = Learner(config, spec, choose_device(config.learner.device))
    layout, parameters = UnrollLayout(specs_for(config, spec, learner.network.state_spec)), learner.parameters()
    sizes = Sizes(
        envs=config.actors.envs,
        unroll_length=config.actors.unroll_length,
        batch_size=config.learner.batch_size,
        unroll_bytes=layout.nbytes,
        parameters_bytes=parameters.block.nbytes,
        frames_per_step=spec.frames_per_step,
    )
    return sizes, layout, parameters


def measure_gateway(
    config: ResolvedConfig, layout: UnrollLayout, parameters: Parameters, folder: Path, seconds: float, say: Say
) -> tuple[float | None, float, float]:
    """Return the seconds per unroll of the gateway and of its sender, and those until parameters come.

    The gateway's are None where the kernel does not say how much processor time a process has used.
    """
    from pronk.actors.base import ActorSetup
    from pronk.actors.gateway import GatewayProcess
    from pronk.bench.workers import started
    from pronk.processes.interrupts import Interrupts
    from pronk.transport.shared_memory import SharedMemoryTransport

    slots = max(2, config.actors.slots)
    changes = {"transport.name": "grpc", "transport.compression": "none", "actors.count": 1, "actors.slots": slots}
    settings = config.replace({**changes, "gateway": {}})
    logs = folder / "gateway" / "logs"
    logs.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        # These interrupts are not entered: they would only note a Ctrl-C, which has to end the measurement here.
        setup = ActorSetup(settings, layout, parameters, None, logs, 0, Interrupts(), say)
        port = SharedMemoryTransport(layout, parameters.block.nbytes, 0, slots, gateway_slots=slots)
        port.publish(parameters)
        gateway = stack.enter_context(GatewayProcess(setup, port, 0, 1))
        stack.enter_context(port)
        gateway.start()
        ticket, _ = gateway.connect(0)
        job = {"address": ticket.address, "token": ticket.token}
        sender = stack.enter_context(started("sender", "pronk.planning.sender_process", [job], folder, say))
        version = parameters.version

        def publish() -> None:
            nonlocal version
            version += 1
            port.publish(parameters._replace(version=version))

        def publish_later() -> None:
            gateway.watch()
            publish()
            time.sleep(PUBLISH_SECONDS)

        pulls = sender.rate("pull", seconds / 2, meanwhile=publish_later)
        taken, before = 0, processor_seconds(gateway.pid)

        def take() -> None:
            nonlocal taken
            gateway.watch()
            if port.waiting:
                with port.unrolls(1):
                    taken += 1
                publish()
            else:
                time.sleep(PUBLISH_SECONDS / 10)

        sent = sender.rate("send", seconds / 2, meanwhile=take)
        after = processor_seconds(gateway.pid)
    used = None if before is None or after is None else (after - before) / max(1, taken)
    return used, 1 / sent, 1 / pulls


def measure_group(config: ResolvedConfig, folder: Path, seconds: float, say: Say) -> float:
    """Return the seconds of an update of two learners, each on its own core, with batches that are ready."""
    from pronk.bench.workers import started

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    jobs = [{"config": config.to_yaml(), "rank": rank, "port": port} for rank in range(2)]
    with started("learner", "pronk.planning.group_process", jobs, folder, say) as group:
        return 1 / group.rate("update", seconds, count=1)


def processor_seconds(pid: int | None) -> float | None:
    """Return the seconds of processor time that a process has used. None: there is no such process, or no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
