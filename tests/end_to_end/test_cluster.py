"""A learner and actors that come and go over the network: real processes, real signals, real sockets."""

import contextlib
import json
import os
import signal
import socket
import time

import pytest
from cluster import SMALL, START, Actor, Learner, credentials, everything_in, tls
from processes import Training, assert_monotone, command_line, read_metrics, read_summary, wait_until
from through_grpc import make_certificate

TOKEN = "correct-horse-battery-staple"
SLOW = "faulty:SlowCatch"  # a run that waits for other processes should not take their cores
pytestmark = pytest.mark.timeout(600)


def guests(board):
    """Actors of other machines, as the dashboard sees them."""
    actors = json.loads(board.read_text())["actors"] if board.exists() else []
    return [one for one in actors if "127.0.0.1" in one["machine"]]


@pytest.fixture
def secured(tmp_path):
    """A certificate and a token."""
    token = tmp_path / "token"
    token.write_text(TOKEN)
    return make_certificate(tmp_path), token


def test_actors_join_leave_and_die_while_the_learner_learns(tmp_path, secured):
    arguments = [SLOW, *SMALL, *tls(*secured), "run.total_steps=1e9", "actors.on_error=stop"]
    with contextlib.ExitStack() as stack:
        learner = stack.enter_context(Learner(tmp_path / "run", *arguments))
        address = learner.wait_until_it_listens()
        first, second = (
            stack.enter_context(Actor(tmp_path / f"{i}.out", address, *credentials(*secured))) for i in range(2)
        )
        stranger = stack.enter_context(Actor(tmp_path / "s.out", address, "--ca", str(secured[0].certificate)))
        learner.wait_for_steps(2000)
        for actor in (first, second):
            actor.wait_until_it_says("joined")
        board = tmp_path / "run/logs/actors.json"
        learner.wait_until(lambda: len(guests(board)) == 2, "that the board shows both")
        assert all(one["state"] in ("playing", "waiting") and one["unrolls"] for one in guests(board))
        first.send(signal.SIGKILL)
        learner.wait_for_steps(2000)
        third = stack.enter_context(
            Actor(tmp_path / "3.out", address, "--ca", str(secured[0].certificate), PRONK_TOKEN=TOKEN)
        )
        third.wait_until_it_says("joined")
        second.send(signal.SIGINT)
        assert second.wait() == 130
        assert "left" in second.said
        learner.wait_for_steps(2000)
        assert stranger.wait() == 2
        assert "the learner requires a token" in stranger.said
        assert stranger.said.count("error:") == 1
        third.send(signal.SIGTERM)
        assert third.wait() == 130
        wait_until(lambda: "waiting for actors: pronk actor" in learner.err, 60, "that it says so", learner)
        fourth = stack.enter_context(Actor(tmp_path / "4.out", address, *credentials(*secured)))
        learner.wait_for_steps(2000)
        learner.send(signal.SIGINT)
        assert learner.wait() == 130
        learner.assert_nothing_left()
        fourth.wait_until_it_says("no learner at")
        said = [actor.said for actor in (first, second, third, fourth, stranger)]
    assert_monotone(read_metrics(learner.path))
    assert not (learner.path / "address").exists()
    for text in (learner.out, learner.err, *said):
        assert TOKEN not in text
        assert "Traceback" not in text
    assert TOKEN.encode() not in everything_in(learner.path)
    assert "actor 0 leaves" in learner.log
    assert learner.log.count("none was sent") == 1


def test_an_actor_waits_for_a_learner_that_was_killed_and_ends_with_the_run(tmp_path):
    arguments = [SLOW, *SMALL, "checkpoint.every_seconds=0.5"]
    with contextlib.ExitStack() as stack:
        learner = stack.enter_context(Learner(tmp_path / "run", *arguments, "run.total_steps=1e9"))
        address = learner.wait_until_it_listens()
        actor = stack.enter_context(Actor(tmp_path / "actor.out", address))
        wait_until(lambda: list((learner.path / "checkpoints").glob("0*.pt")) and learner.steps, START, "a checkpoint")
        learner.send(signal.SIGKILL)
        learner.wait()
        actor.wait_until_it_says("no learner at")
        before = max(int(path.stem) for path in (learner.path / "checkpoints").glob("0*.pt"))
        os.remove(learner.path / "address")
        resumed = Training(
            learner.path,
            str(learner.path),
            "--resume",
            f"gateway.address={address}",
            f"run.total_steps={before + 2000}",
            command="learner",
        )
        with resumed:
            assert resumed.wait(START) == 0, resumed.err
        assert actor.wait() == 0, actor.said
        assert "the learner was restarted" in actor.said
        assert "the learner's run has ended" in actor.said
    summary = read_summary(learner.path)
    assert summary["outcome"] == "finished"
    assert summary["env_steps"] >= before + 2000


@pytest.mark.slow
def test_own_and_other_actors_feed_one_learner(tmp_path):
    arguments = [SLOW, *SMALL, "actors.count=1", "run.total_steps=1e9"]
    with contextlib.ExitStack() as stack:
        learner = stack.enter_context(Learner(tmp_path / "run", *arguments))
        address = learner.wait_until_it_listens()
        learner.wait_for_steps(1000)
        assert learner.lives(0)
        actor = stack.enter_context(Actor(tmp_path / "actor.out", address))
        wait_until(lambda: "actor 1 joins" in learner.log, START, "the other actor", learner)
        learner.wait_for_steps(1000)
        for process in learner.descendants():  # the gateway and the learner's own actor
            if process.pid != learner.lives(0)[-1].pid:
                os.kill(process.pid, signal.SIGKILL)  # the gateway: it is started again on the same port
        wait_until(lambda: learner.log.count("actor 1 joins") == 2, START, "its return", learner)
        assert actor.process.poll() is None
        learner.wait_for_steps(1000)
        learner.send(signal.SIGINT)
        assert learner.wait() == 130
        learner.assert_nothing_left()


def test_one_line_of_the_configuration_moves_a_run_to_grpc(tmp_path):
    arguments = ["catch", *SMALL, "transport=grpc", "actors.count=1", "run.total_steps=8000", "actors.sync_every=2"]
    with Training(tmp_path / "run", *arguments) as training:
        assert training.wait(240) == 0, training.err
        training.assert_nothing_left()
    assert read_summary(tmp_path / "run")["outcome"] == "finished"
    assert "joined 127.0.0.1:" in training.lives(0)[0].log
    assert "own" not in training.err


@pytest.mark.slow
def test_strangers_cost_the_learner_nothing(tmp_path, secured):
    """Half-open connections, plain text, random bytes: the learner learns on, and the log has each reason once."""
    arguments = ["catch", *SMALL, *tls(*secured), "actors.count=1", "run.total_steps=1e9"]
    with Learner(tmp_path / "run", *arguments) as learner, contextlib.ExitStack() as stack:
        host, port = learner.wait_until_it_listens().split(":")
        learner.wait_for_steps(1000)

        def knock(message: bytes = b"") -> socket.socket:
            knocker = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
            knocker.sendall(message)
            return knocker

        gateway = next(p.pid for p in learner.descendants() if p.pid != learner.lives(0)[-1].pid)
        before = memory_of(gateway)
        silent = [knock() for _ in range(1000)]
        for _ in range(20):
            knock(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(100))
            knock(os.urandom(1000))
            knock(b"GET / HTTP/1.1\r\nHost: learner\r\n\r\n")
        learner.wait_for_steps(1000)
        deadline = time.monotonic() + 60
        for knocker in silent:  # all are hung up on
            knocker.settimeout(max(0.1, deadline - time.monotonic()))
            with contextlib.suppress(ConnectionError):
                assert knocker.recv(1) == b""
        learner.wait_for_steps(1000)
        assert memory_of(gateway) - before < 200e6
        with Actor(tmp_path / "actor.out", f"{host}:{port}", *credentials(*secured)) as actor:
            actor.wait_until_it_says("joined")
            learner.wait_for_steps(1000)
        for reason in ("TLS handshake failed: plain text, or random bytes", "a connection that stayed silent"):
            assert learner.log.count(reason) == 1
        learner.send(signal.SIGINT)
        assert learner.wait() == 130
    assert "Traceback" not in learner.err


def memory_of(pid: int) -> int:
    """Resident, in bytes."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["actor", "nowhere"], "'nowhere' is not an address; write HOST:PORT"),
        (["actor", "127.0.0.1:0"], "a port is required"),
        (["actor", "127.0.0.1:1", "--give-up-after", "-1"], "--give-up-after"),
        (
            ["actor", "127.0.0.1:1", "--ca", "missing.pem"],
            "certificate authority: cannot read missing.pem",
        ),
        (["actor", "127.0.0.1:1", "--cert", "missing.pem"], "a certificate and its private key belong together"),
        (["learner", "catch", "gateway.address=0.0.0.0:5050"], "gateway.insecure=true goes without"),
        (["learner", "catch", "gateway.address=5050"], "gateway.address must be a valid string, got 5050"),
        (["learner", "catch", "transport=local"], "gateway.address needs transport=shared_memory"),
        (["train", "catch", "actors.count=0"], "actors.count=0 leaves no actor to play"),
        (["train", "catch", "transport=grpcc"], "'grpcc' is not one of shared_memory, local, grpc"),
    ],
)
def test_a_mistake_is_one_line(arguments, reason, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PRONK_TOKEN", raising=False)
    ended = command_line(*arguments)
    assert ended.code == 2
    assert reason in ended.err
    assert ended.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_an_actor_gives_up_when_told_to(tmp_path):
    ended = command_line("actor", "127.0.0.1:1", "--give-up-after", "2")
    assert ended.code == 1
    assert "failed: no learner at 127.0.0.1:1 for 2 s: nothing listens there" in ended.err
    assert ended.out.count("trying again until there is one") == 1
