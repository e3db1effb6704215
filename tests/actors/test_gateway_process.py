"""The gateway's process under its supervisor, and what the user is told about remote actors."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from actors import actor_setup, actors_of
from processes import wait_until

from pronk.actors import gateway, remote_count
from pronk.actors.remote_count import RemoteCount
from pronk.config.resolved import Rank
from pronk.layout import UnrollLayout
from pronk.processes.messages import ActorJoined
from pronk.transport import LearnerPort
from pronk.transport.grpc_actor import Connection, GrpcActorPort
from pronk.transport.security import Credentials
from pronk.transport.shared_memory import SharedMemoryTransport

NOBODY = ("actors.count=0", "gateway.address=127.0.0.1:0", "actors.envs=16")


def pids(log: Path) -> list[int]:
    return [int(pid) for pid in re.findall(r"the gateway starts \(life \d+, pid (\d+)\)", log.read_text())]


def take(port: LearnerPort, unrolls: int) -> None:
    for _ in range(unrolls):
        with port.unrolls(1):
            pass


@pytest.mark.parametrize(
    ("number", "cause"),
    [(signal.SIGKILL, "killed by SIGKILL"), (signal.SIGSTOP, "no sign of life for 2 s: it is stopped (SIGSTOP)")],
)
def test_a_killed_or_frozen_gateway_is_restarted_at_the_same_address(
    number: signal.Signals, cause: str, tmp_path: Path
) -> None:
    said: list[str] = []
    with actors_of(tmp_path / "run", "catch", *NOBODY, "actors.timeout_seconds=2", say=said.append) as (_, watch):
        log, address = tmp_path / "run" / "logs" / "gateway.log", tmp_path / "run" / "address"
        before = address.read_text()
        os.kill(pids(log)[0], number)

        def restarted() -> bool:
            watch()
            return log.read_text().count("starts (life") == 2

        wait_until(restarted, 60.0, "its restart")
        time.sleep(0.2)
        watch()
        assert address.read_text() == before
    assert any(line.startswith(f"the gateway failed ({cause}); restarting it. Its log: ") for line in said), said


def test_a_gateway_that_is_restarted_on_a_full_disk_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    said: list[str] = []
    with actors_of(tmp_path / "run", "catch", *NOBODY, say=said.append) as (_, watch):
        address = tmp_path / "run" / "address"
        before = address.read_text()
        monkeypatch.setattr(gateway, "write_atomically", full)
        os.kill(pids(tmp_path / "run" / "logs" / "gateway.log")[0], signal.SIGKILL)

        def reported() -> bool:
            watch()
            return any(line.startswith(f"cannot write {address}: ") for line in said)

        wait_until(reported, 60.0, "the message")
        assert address.read_text() == before


def test_a_frozen_gateway_is_noticed_long_before_its_actors_are_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`actors.timeout_seconds` is for environments, which may be slow. A gateway has no reason to be silent."""
    monkeypatch.setattr(gateway, "SILENT_SECONDS", 3.0)
    said: list[str] = []
    settings = ("transport=grpc", "actors.count=2", "actors.envs=4", "actors.timeout_seconds=30")
    with actors_of(tmp_path / "run", "catch", *settings, say=said.append) as (port, watch):
        log = tmp_path / "run" / "logs" / "gateway.log"
        take(port, 2)
        for life in range(4):  # more often than a fault of its own would be forgiven
            os.kill(pids(log)[life], signal.SIGSTOP)

            def restarted(life: int = life) -> bool:
                watch()
                return log.read_text().count("starts (life") == life + 2

            wait_until(restarted, 60.0, "its restart")
            take(port, 8)
    stopped = "the gateway failed (no sign of life for 3 s: it is stopped (SIGSTOP)); restarting it. Its log: "
    assert [line.startswith(stopped) for line in said] == [True] * 4, said


def test_the_token_is_not_in_the_environment_of_actors_and_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRONK_TOKEN", "a-secret-token")
    settings = ("actors.count=1", "gateway.address=127.0.0.1:0", "actors.envs=16")
    with actors_of(tmp_path / "run", "catch", *settings, say=lambda line: None) as (port, _):
        take(port, 1)
        logs = (tmp_path / "run" / "logs").glob("*.log")
        started = [int(pid) for log in logs for pid in re.findall(r"life \d+, pid (\d+)\)", log.read_text())]
        assert len(started) == 2
        for pid in started:
            assert b"a-secret-token" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_an_actor_that_sends_absurd_values_is_removed_and_named(tmp_path: Path) -> None:
    said: list[str] = []
    with actors_of(tmp_path / "run", "catch", *NOBODY, say=said.append) as (port, watch):
        connection = Connection((tmp_path / "run" / "address").read_text().strip(), Credentials(), 8.0)
        welcome = connection.welcome
        layout = UnrollLayout.from_plain(welcome["layout"])
        rogue = GrpcActorPort(connection, layout, welcome["parameters_nbytes"])
        with contextlib.suppress(Exception), rogue.unroll() as unroll:  # it is told so, now or when it next asks
            unroll.episode_return[...] = np.nan
            unroll.valid[...] = True
            unroll.reward[...] = 1e18

        def told() -> bool:
            watch()
            return any("was removed" in line for line in said)

        wait_until(told, 60.0, "the message")
        assert port.waiting == 0
    (line,) = (line for line in said if "was removed" in line)
    assert re.match(r"actor 0 \('.+' at .+\) was removed: it sent impossible values \(reward holds 1e\+18", line), line


@pytest.mark.parametrize(("actor", "is_silent"), [(0, True), (1, False)])
def test_the_clock_of_an_own_actor_does_not_start_again_when_it_joins(
    actor: int, is_silent: bool, tmp_path: Path
) -> None:
    """One whose unrolls are refused joins again and again. Actor 1 is of another machine."""
    setup = actor_setup(tmp_path / "run", "catch", "transport=grpc", "actors.count=1", say=pytest.fail)
    transport = SharedMemoryTransport(setup.layout, setup.parameters.block.nbytes, 0, 1, gateway_slots=2)
    with transport as port:
        process = gateway.GatewayProcess(setup, port, 0, 2)
        process.connect(actor)
        time.sleep(0.2)
        process._handle([ActorJoined(actor, "it", 1)])
        assert (port.silent_seconds(actor) >= 0.2) == is_silent


def test_a_learner_of_several_waits_for_its_own_share_of_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_count, "SAY_SECONDS", 0.0)
    said: list[str] = []
    overrides = (*NOBODY, "learners.count=4", "learner.batch_size=256", "actors.slots=2")
    count = RemoteCount(actor_setup(tmp_path / "run", "catch", *overrides, say=said.append, rank=Rank(0, 4, 0, 4)))
    count.playing = 1
    for _ in range(3):
        count.report_shortage()
        time.sleep(0.001)
    assert said == [
        f"a batch joins 4 unrolls, and the actors that play have room for 2; waiting for actors: pronk actor {''}"
    ]
    count.playing = 2
    count.report_shortage()
    assert len(said) == 1
