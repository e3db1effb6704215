"""Training with actors.inference=central, through real processes: it learns, and survives the end of any of them."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest
from cluster import SMALL, START, Actor, Learner
from processes import PROC, SIZES, STEPS_PER_UPDATE, Training, assert_monotone, command_line, read_metrics, read_summary

CENTRAL = ("actors.inference=central", "actors.count=2")
ALONE = ("actors.inference=central", "actors.count=1")
ENDLESS = (*SIZES, "run.log_every_seconds=0.1", "run.stop_return=null", "run.total_steps=1e9")
KILLS = 3  # as many failures of its own would end the run


def servers(training: Training) -> list[int]:
    """The process id of each life of the server."""
    log = training.path / "logs" / "inference.log"
    text = log.read_text() if log.exists() else ""
    return [int(pid) for pid in re.findall(r"the inference server starts \(life \d+, pid (\d+)\)", text)]


def wait_for_more_updates(training: Training, more: int = 5) -> None:
    updates = training.metrics()[-1]["updates"]
    training.wait_until(lambda: training.metrics()[-1]["updates"] >= updates + more, "more updates")


@pytest.mark.timeout(240)
def test_training_goes_on_when_the_server_or_an_actor_is_killed(tmp_path: Path) -> None:
    recurrent = ("network.core=lstm", "network.core_size=16")
    with Training(tmp_path / "run", "faulty:SlowCatch", *CENTRAL, *ENDLESS, *recurrent) as training:
        training.wait_for_updates()
        for life in range(KILLS):
            assert len(servers(training)) == life + 1
            victim = servers(training)[life]
            assert victim in {process.pid for process in training.descendants()}
            os.kill(victim, signal.SIGKILL)
            training.wait_until(lambda life=life: len(servers(training)) > life + 1, "the next server")
            wait_for_more_updates(training)
        os.kill(training.lives(1)[0].pid, signal.SIGKILL)
        training.wait_until(lambda: len(training.lives(1)) > 1 and "delivered" in training.lives(1)[1].log, "actor 1")
        wait_for_more_updates(training)
        assert len(training.lives(0)) == 1, "actor 0 noticed nothing"
        training.send(signal.SIGINT)
        assert training.wait() == 130
        training.assert_nothing_left()

        lines = training.metrics()
        assert_monotone(lines)
        assert all(line["env_steps"] == line["updates"] * STEPS_PER_UPDATE for line in lines)
        assert all(line["policy_lag"] >= 0 for line in lines)
        assert training.err.count("the inference server failed (killed by SIGKILL); restarting it") == KILLS
        assert "Traceback" not in training.err


@pytest.mark.timeout(180)
def test_a_server_that_hangs_is_restarted_and_its_actor_is_not(tmp_path: Path) -> None:
    settings = (*ALONE, *ENDLESS, "actors.timeout_seconds=8")
    with Training(tmp_path / "run", "faulty:SlowCatch", *settings) as training:
        training.wait_for_updates()
        os.kill(servers(training)[0], signal.SIGSTOP)
        training.wait_until(lambda: len(servers(training)) == 2, "the next server")
        wait_for_more_updates(training)
        assert "no sign of life for 4 s (half of actors.timeout_seconds): it is stopped (SIGSTOP)" in training.err
        assert len(training.lives(0)) == 1
        training.send(signal.SIGKILL)
        assert training.wait() == -signal.SIGKILL
        training.assert_nothing_left()


def gateways(learner: Learner) -> list[int]:
    """The process id of each life of the gateway."""
    return [int(pid) for pid in re.findall(r"the gateway starts \(life \d+, pid (\d+)\)", learner.log)]


@pytest.mark.timeout(300)
def test_actors_of_other_machines_are_served_too_whoever_is_killed(tmp_path: Path) -> None:
    recurrent = ("network.core=lstm", "network.core_size=16")
    settings = ("faulty:SlowCatch", *SMALL, *CENTRAL[:1], *recurrent, "actors.count=1", "run.total_steps=1e9")
    with Learner(tmp_path / "run", *settings) as learner:
        address = learner.wait_until_it_listens()
        with Actor(tmp_path / "one.out", address) as one, Actor(tmp_path / "two.out", address) as two:
            for actor in (one, two):
                learner.wait_until(lambda actor=actor: "delivered" in actor.said, "its second unroll", START)
            for life in range(KILLS):
                os.kill(servers(learner)[life], signal.SIGKILL)
                learner.wait_until(lambda life=life: len(servers(learner)) > life + 1, "the next server")
                learner.wait_for_steps(1000)
            assert "lost" not in one.said, "an actor notices only a pause"
            os.kill(gateways(learner)[0], signal.SIGKILL)
            learner.wait_until(lambda: len(gateways(learner)) == 2, "the next gateway")
            learner.wait_until(lambda: learner.log.count("joins: ") >= 4, "both actors, once more")
            learner.wait_for_steps(1000)
            two.send(signal.SIGKILL)
            two.wait()
            learner.wait_for_steps(1000)
            assert one.process.poll() is None
            learner.send(signal.SIGINT)
            assert learner.wait() == 130
        learner.assert_nothing_left()
        lines = learner.metrics()
        assert_monotone(lines)
        assert all(line["policy_lag"] >= 0 for line in lines)
        assert "Traceback" not in learner.err + one.said + two.said


@pytest.mark.timeout(240)
def test_a_learner_whose_only_actors_are_thin(tmp_path: Path) -> None:
    """No actor of its own; the one that joins has neither torch nor parameters."""
    settings = ("catch", *SMALL, *CENTRAL[:1], "actors.count=0", "network.core=lstm", "run.total_steps=16000")
    with Learner(tmp_path / "run", *settings) as learner:
        address = learner.wait_until_it_listens()
        with Actor(tmp_path / "actor.out", address, fresh=True) as actor:
            learner.wait_for_steps(1000)
            if PROC.exists():
                assert "libtorch" not in (PROC / f"{actor.process.pid}/maps").read_text()
            assert learner.wait(START) == 0, learner.err
            assert actor.wait() == 0, actor.said


@pytest.mark.timeout(240)
def test_the_learners_own_actors_may_use_grpc_too(tmp_path: Path) -> None:
    with Training(tmp_path / "run", "faulty:SlowCatch", *CENTRAL, *ENDLESS, "transport=grpc") as training:
        training.wait_for_updates()
        os.kill(servers(training)[0], signal.SIGKILL)
        training.wait_until(lambda: len(servers(training)) == 2, "the next server")
        wait_for_more_updates(training)
        os.kill(training.lives(1)[0].pid, signal.SIGKILL)
        training.wait_until(lambda: len(training.lives(1)) > 1 and "delivered" in training.lives(1)[1].log, "actor 1")
        wait_for_more_updates(training)
        assert len(training.lives(0)) == 1, "actor 0 noticed nothing"
        training.send(signal.SIGINT)
        assert training.wait() == 130
        training.assert_nothing_left()
        assert "Traceback" not in training.err


@pytest.mark.timeout(240)
def test_an_observation_that_is_not_finite_ends_a_run_over_grpc(tmp_path: Path) -> None:
    """The gateway refuses to have it acted on, each time that the actor joins again."""
    settings = (*ALONE, *ENDLESS, "actors.envs=2", "learner.batch_size=2", "transport=grpc")
    with Training(tmp_path / "run", "faulty:NanObservation", *settings) as training:
        assert training.wait(120) == 1
        training.assert_nothing_left()
        assert "cannot request actions: observation holds a value that is not finite" in training.err


def test_a_network_that_fails_in_the_server_ends_the_run_with_its_cause(tmp_path: Path) -> None:
    began = time.monotonic()
    ended = command_line(
        *("train", "catch", *ALONE, "network.name=own_parts:FailsInServer", "network.kwargs.gain=1"),
        *("--run-dir", tmp_path / "run", "--quiet"),
    )
    assert ended.code == 1, ended.err
    assert "the inference server failed" in ended.err
    assert "only the server computes a policy" in ended.err
    assert time.monotonic() - began < 60


@pytest.mark.timeout(240)
@pytest.mark.slow
def test_it_learns_cartpole_as_local_inference_does(tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = ("actors.inference=central", "run.total_steps=200000", "run.stop_return=null")
    ended = command_line("train", "cartpole", *settings, "--seed", "1", "--run-dir", run, "--quiet")
    assert ended.code == 0, ended.err
    lines, summary = read_metrics(run), read_summary(run)
    assert summary["outcome"] == "finished"
    assert lines[0]["episode_return"] is None or lines[0]["episode_return"] < 60
    assert summary["episode_return"] > 150
    log = (run / "logs" / "inference.log").read_text()
    assert re.search(r"[1-9][\d,]* batches, \d+\.\d observations each", log)
