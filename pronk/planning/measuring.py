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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pronk.config import Config, Rank, ResolvedConfig, available_cores, decided, resolve
from pronk.planning.costs import Costs, Sizes
from pronk.processes.messages import MeasurePart, PartMeasured
from pronk.processes.restarts import NEVER
from pronk.processes.supervisor import Child, Start, SupervisedProcess, Supervisor

if TYPE_CHECKING:
    from pronk.layout import UnrollLayout
    from pronk.types import Parameters

Say = Callable[[str], None]

GRACE_SECONDS = 2.0
POLL_SECONDS = 0.005
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
    from pronk.bench.workers import workers
    from pronk.device import choose_device

    cores, part = available_cores(), SHARE * seconds
    threads = config.learner.threads
    device = "given" if learner_rate else choose_device(config.learner.device).type
    learning = 1 if device != "cpu" else max(1, cores // threads)  # processes that keep all cores busy with updates
    sizes, layout, parameters = sizes_of(config, say)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with workers(config, cores, folder, say, whole=True) as measured:
            actor, update = measured.rate("actor", part), learner_rate or measured.rate("update", part, learning)
            alone = [measured.rate("actor", part, 1) / actor]
            if not learner_rate:
                alone.append(measured.rate("update", part, 1) / update)
        costs = Costs(
            cores=cores,
            envs=sizes.envs,
            unroll_length=sizes.unroll_length,
            batch_size=sizes.batch_size,
            actor=1 / actor,
            update=1 / update,
            threads=threads,
            device=device,
            crowding=min(1.0, len(alone) / sum(alone)),
            unroll_bytes=sizes.unroll_bytes,
            parameters_bytes=sizes.parameters_bytes,
            frames_per_step=sizes.frames_per_step,
        )
        values = costs.plain()
        if network:
            values |= measure_gateway(config, layout, parameters, folder, part, say)
        if learners and not learner_rate:
            columns = sizes.unroll_length * sizes.batch_size
            values["exchange"] = max(1e-9, measure_group(config, folder, part, say) - costs.update * columns)
    return Costs(**values)


def sizes_of(config: ResolvedConfig, say: Say) -> tuple[Sizes, UnrollLayout, Parameters]:
    """Return the sizes of messages; also the layout of an unroll, and the first parameters."""
    from pronk.actor import specs_for
    from pronk.device import choose_device
    from pronk.envs import make_env
    from pronk.layout import UnrollLayout
    from pronk.learner import Learner

    with contextlib.closing(make_env(config, config.actors.envs)) as env:
        spec = env.spec
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
) -> dict[str, float]:
    """Return the seconds per unroll of the gateway and of its sender, and those until parameters come."""
    from pronk.actors.base import ActorSetup
    from pronk.actors.gateway import GatewayProcess
    from pronk.processes.interrupts import Interrupts
    from pronk.transport.shared_memory import SharedMemoryTransport

    slots = max(2, config.actors.slots)
    changes = {"transport.name": "grpc", "transport.compression": "none", "actors.count": 1, "actors.slots": slots}
    settings = config.replace({**changes, "gateway": {}})
    logs = folder / "gateway" / "logs"
    logs.mkdir(parents=True)
    with Interrupts() as interrupts, contextlib.ExitStack() as stack:
        setup = ActorSetup(settings, layout, parameters, None, logs, 0, interrupts, say)
        port = SharedMemoryTransport(layout, parameters.block.nbytes, 0, slots, gateway_slots=slots)
        port.publish(parameters)
        gateway = stack.enter_context(GatewayProcess(setup, port, 0, 1))
        stack.enter_context(port)
        gateway.start()
        ticket, _ = gateway.connect(0)
        job = {"address": ticket.address, "token": ticket.token}
        [sender] = stack.enter_context(processes("pronk.planning.sender_process", [job], folder, say))
        version = parameters.version

        def publish() -> None:
            nonlocal version
            version += 1
            port.publish(parameters._replace(version=version))

        def publish_later() -> None:
            publish()
            time.sleep(PUBLISH_SECONDS)

        pulls = asked(sender, MeasurePart("pull", seconds / 2), publish_later)
        taken, used = 0, processor_seconds(gateway.pid)

        def take() -> None:
            nonlocal taken
            if port.waiting:
                with port.unrolls(1):
                    taken += 1
                publish()
            else:
                time.sleep(PUBLISH_SECONDS / 10)

        sent = asked(sender, MeasurePart("send", seconds / 2), take)
        used = processor_seconds(gateway.pid) - used
    return {"gateway": used / max(1, taken), "send": 1 / sent, "pull": 1 / pulls}


def measure_group(config: ResolvedConfig, folder: Path, seconds: float, say: Say) -> float:
    """Return the seconds of an update of two learners, each on its own core, with batches that are ready."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    jobs = [{"config": config.to_yaml(), "rank": rank, "port": port} for rank in range(2)]
    with processes("pronk.planning.group_process", jobs, folder, say) as [first, _]:
        return 1 / asked(first, MeasurePart("group", seconds))


def asked(process: SupervisedProcess, message: MeasurePart, meanwhile: Callable[[], Any] | None = None) -> float:
    """Send a request and return the rate in the reply; call `meanwhile` again and again until it comes."""
    process.send(message)
    while True:
        for answer in process.poll():
            assert isinstance(answer, PartMeasured)
            return answer.rate
        (meanwhile or (lambda: time.sleep(POLL_SECONDS)))()


@contextlib.contextmanager
def processes(program: str, jobs: list[dict[str, Any]], folder: Path, say: Say) -> Iterator[list[SupervisedProcess]]:
    """Start one process for each job and wait until all have reported; leaving the block ends them."""
    name = program.rpartition(".")[2].removesuffix("_process")
    children = [
        SupervisedProcess(
            Child(
                name=f"{name} {number}",
                program=program,
                log=folder / f"{name}-{number}.log",
                prepare=lambda life, job=job: Start(job),  # type: ignore[misc]
                policy=NEVER,
            ),
            say,
        )
        for number, job in enumerate(jobs)
    ]
    supervisor = Supervisor(children, GRACE_SECONDS)
    try:
        supervisor.start()
        while not all(one.has_reported for one in children):
            time.sleep(POLL_SECONDS)
            for one in children:
                one.poll()
        yield children
    finally:
        supervisor.stop()


def processor_seconds(pid: int | None) -> float:
    """Return the seconds of processor time that a process has used, from the kernel's /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
