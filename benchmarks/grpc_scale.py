"""One learner's ingest with many actors: `python benchmarks/grpc_scale.py --actors 500 --seconds 20`.

Simulated actors in a few processes, each with a connection and a stream of its own, send real Pong-size unrolls (20
steps of 84 x 84 x 4) through the gateway as fast as their credits allow; a learner's port takes them and copies each
into a batch. The sender numbers every unroll in its observations and the receiver checks the numbers: nothing may be
lost, come twice, or out of order. Memory is compared with what the credits allow.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from pronk.actors.base import ActorSetup
from pronk.actors.gateway import COPIES, running_actors
from pronk.config import available_cores, load_config, resolve
from pronk.layout import UnrollLayout
from pronk.processes.freed_memory import keep_freed_memory
from pronk.processes.interrupts import Interrupts
from pronk.types import ActionSpec, ArraySpec, EnvSpec, Parameters, unroll_specs

PARAMETERS_NBYTES = 6_400_000  # about those of the paper's deep network
PAPER_STEPS = 62_500  # per second: 250,000 frames/s, of its largest experiment

SLOTS = 2
OWN_MEGABYTES = 300  # of Python, gRPC and 500 connections

CLIENT = "from grpc_scale import simulate; import sys; simulate(*sys.argv[1:])"


def specs(envs: int) -> Any:
    return unroll_specs(EnvSpec(ArraySpec((84, 84, 4), "uint8"), ActionSpec((), (6,))), {}, length=20, envs=envs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--actors", type=int, default=500)
    parser.add_argument("--envs", type=int, default=1, help="environments per actor; the paper's had one")
    parser.add_argument("--processes", type=int, default=2, help="that the simulated actors share")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--compression", default="none", choices=["none", "lz4", "zstd"])
    parser.add_argument("--sync-every", type=int, default=0, help="pull 6.4 MB of parameters every so many unrolls")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "logs").mkdir()
        report(options, Path(folder))


def report(options: argparse.Namespace, folder: Path) -> None:
    layout = UnrollLayout(specs(options.envs))
    config = load_config(
        "cartpole",
        [
            "actors.count=0",
            f"actors.slots={SLOTS}",
            f"actors.envs={options.envs}",
            f"learner.batch_size={options.envs}",
            "gateway.address=127.0.0.1:0",
            f"transport.compression={options.compression}",
            f"gateway.max_actors={options.actors}",
        ],
    )
    parameters = Parameters(0, np.zeros(PARAMETERS_NBYTES, np.uint8))
    said: list[str] = []
    with Interrupts() as interrupts:
        setup = ActorSetup(resolve(config), layout, parameters, None, folder / "logs", 0, interrupts, said.append)
        with running_actors(setup) as (port, watch):
            address = (folder / "address").read_text().strip()
            clients = start_clients(options, address)
            try:
                figures = take(options, layout, port, watch, clients)
            except BaseException:
                print((folder / "logs" / "gateway.log").read_text()[:2000])
                raise
            finally:
                for client in clients:
                    client.kill()
                    client.wait()
    show(options, layout, figures, (folder / "logs" / "gateway.log").read_text())


def start_clients(options: argparse.Namespace, address: str) -> list[subprocess.Popen[bytes]]:
    here = str(Path(__file__).parent)
    shares = [options.actors // options.processes] * options.processes
    shares[0] += options.actors - sum(shares)
    return [
        subprocess.Popen(
            [sys.executable, "-c", CLIENT, address, str(share), str(options.envs), str(options.sync_every)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join([here, *sys.path])},
        )
        for share in shares
    ]


def take(
    options: argparse.Namespace, layout: UnrollLayout, port: Any, watch: Any, clients: list[Any]
) -> dict[str, Any]:
    """Take unrolls as a learner would, once everybody is there."""
    stage = layout.allocate()
    due: dict[int, int] = {}
    wrong: list[str] = []

    def look() -> None:
        watch()
        assert all(client.poll() is None for client in clients), "a client ended"

    port.while_waiting = look

    def one() -> None:
        with port.unrolls(1) as [unroll]:
            who, number = (int(n) for n in unroll.observation.reshape(-1)[:16].view(np.int64))
            np.copyto(stage.observation, unroll.observation)
        if number != due.get(who, 0):
            wrong.append(f"actor {who}: {number} came where {due.get(who, 0)} was due")
        due[who] = number + 1

    began = time.monotonic()
    while len(due) < options.actors:
        one()
        watch()
        assert time.monotonic() - began < 600, f"only {len(due)} actors came"
        assert all(client.poll() is None for client in clients), "a client ended"
    joined = time.monotonic() - began
    count, most, began = sum(due.values()), 0.0, time.monotonic()
    gateway = gateway_pid(clients)
    while (seconds := time.monotonic() - began) < options.seconds:
        one()
        if int(seconds) != int(time.monotonic() - began):
            watch()
            most = max(most, memory_of(gateway))
    taken = sum(due.values()) - count
    assert all(client.poll() is None for client in clients), "a client ended"
    return {
        "joined": joined,
        "rate": taken / seconds,
        "wrong": wrong,
        "least": min(due.values()),
        "most": max(due.values()),
        "memory": most,
    }


def gateway_pid(clients: list[subprocess.Popen[bytes]]) -> int:
    """The one child of this process that is not a client."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    [gateway] = {int(child) for child in children} - {client.pid for client in clients}
    return gateway


def memory_of(pid: int) -> float:
    """MB, slots included: they are mapped and touched there."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def show(options: argparse.Namespace, layout: UnrollLayout, figures: dict[str, Any], log: str) -> None:
    megabytes, steps = layout.nbytes / 1e6, 20 * options.envs
    allowed = COPIES * options.actors * SLOTS * megabytes + OWN_MEGABYTES
    rate, wrong = figures["rate"], figures["wrong"]
    print(f"{options.actors} actors x {options.envs} environments, {available_cores()} cores")
    print(f"an unroll of {steps} steps has {megabytes:.2f} MB")
    print(f"all had sent one after {figures['joined']:.1f} s; each sent {figures['least']} to {figures['most']}")
    refused = [line for line in log.splitlines() if "refused" in line]
    print(f"lost, doubled or out of order: {len(wrong)}; refused: {len(refused)}", *refused, sep="\n    ")
    print(f"ingest: {rate:,.0f} unrolls/s = {rate * megabytes:,.0f} MB/s = {rate * steps:,.0f} steps/s")
    wanted = PAPER_STEPS / steps * megabytes
    print(
        f"250K frames/s are {PAPER_STEPS:,} steps/s = {wanted:,.0f} MB/s: this is {rate * megabytes / wanted:.0%} of it"
    )
    print(f"gateway's memory: {figures['memory']:,.0f} MB; the credits bound it to {allowed:,.0f} MB")
    for line in wrong[:5]:
        print(line)
    if wrong or "refused" in log or figures["memory"] > allowed:
        raise SystemExit(1)


def simulate(address: str, count: str, envs: str, sync_every: str) -> None:
    """So many actors in this process: asyncio, one stream each."""
    import asyncio

    asyncio.run(simulate_all(address, int(count), int(envs), int(sync_every)))


async def simulate_all(address: str, count: int, envs: int, sync_every: int) -> None:
    import asyncio

    keep_freed_memory()
    all_here = asyncio.Barrier(count)
    await asyncio.gather(*(simulate_one(address, envs, sync_every, all_here) for _ in range(count)))


async def simulate_one(address: str, envs: int, sync_every: int, all_here: Any) -> None:
    """What `GrpcActorPort` does, without a thread for each. All of a process begin to play together."""
    import grpc

    from pronk.transport.frames import (
        HEADER,
        METHOD,
        PROTOCOL,
        Kind,
        pack,
        pack_json,
        stream_options,
        unpack,
        unpack_json,
    )

    layout = UnrollLayout(specs(envs))
    options = [*stream_options(8.0), ("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    message = bytearray(pack(Kind.UNROLL, bytes(layout.nbytes)))
    unroll = layout.view(memoryview(message)[HEADER.size :])
    unroll.episode_return[...] = np.nan
    unroll.observation[...] = np.random.default_rng(os.getpid()).integers(0, 4, unroll.observation.shape)
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        stream = channel.stream_stream(METHOD)()
        await stream.write(pack_json(Kind.HELLO, {"protocol": PROTOCOL, "name": "simulated"}))
        who = unpack_json(unpack(await stream.read()), Kind.WELCOME)["actor"]
        await stream.write(pack_json(Kind.READY, {"layout": layout.digest}))
        await all_here.wait()
        limit = number = 0
        while True:
            while number < limit:
                if sync_every and number % sync_every == 0:
                    await stream.write(pack(Kind.PULL))
                unroll.observation.reshape(-1)[:16] = np.array([who, number], np.int64).view(np.uint8)
                HEADER.pack_into(message, 0, b"PRNK", Kind.UNROLL, 0, number, 0, layout.nbytes)
                await stream.write(bytes(message))
                number += 1
            reply = await stream.read()
            if reply is grpc.aio.EOF:
                return
            frame = unpack(reply)
            if frame.kind is Kind.CREDIT:
                limit = frame.limit


if __name__ == "__main__":
    main()
