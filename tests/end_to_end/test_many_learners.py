"""Several learners that act as one, through the command line: real processes, real signals."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from processes import (
    SIZES,
    STEPS_PER_UPDATE,
    SUPPORT,
    Training,
    assert_monotone,
    assert_resumes,
    assert_saved,
    command_line,
    descendants_of,
    read_metrics,
    read_summary,
    trainings_at_once,
    wait_until,
)

from pronk.config import load_config
from pronk.runs.directory import RunDirectory

pytestmark = pytest.mark.timeout(300)
START, END = 150.0, 60.0  # seconds, on a busy machine; alone it takes a few
ENDLESS = (*SIZES, "run.log_every_seconds=0.1", "run.stop_return=null", "run.total_steps=1e9")
TWO = ("learners=2", "actors.count=2")
HERE = ("transport=local", "learners=2")  # without actor processes, which cost time to start


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Training]]:
    folder = tmp_path_factory.mktemp("learners")
    broken = "loss=own_parts:BrokenInFurtherLearners"
    commands = {
        "playing": ("faulty:SlowCatch", "actors.timeout_seconds=10", *TWO, *ENDLESS),
        "hanging": ("faulty:HangsInStep", "env.kwargs.after=200", *TWO, *ENDLESS),
        "asked": ("faulty:SlowCatch", *HERE, *ENDLESS),
        "broken": ("catch", broken, *HERE, *ENDLESS),
    }
    with trainings_at_once(folder, commands) as started:
        yield started


def pid_of_learner(training: Training, rank: int, life: int = 0) -> int:
    log = training.path / "logs" / f"learner-{rank:03d}.log"
    return int(re.findall(rf"starts \(life {life}, pid (\d+)\)", log.read_text())[-1])


def errors_of(training: Training) -> str:
    """What it printed as errors, without the notice that a start takes long on a busy machine."""
    lines = training.err.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("waiting for learner"))


def test_a_learner_that_is_killed_or_stopped_is_replaced_and_training_goes_on(trainings: dict[str, Training]) -> None:
    training = trainings["playing"]
    training.wait_until(lambda: training.metrics()[2:], "a few lines of metrics", START)
    assert len(training.descendants()) >= 3, "a learner and two actors"
    kill_and_wait(training, signal.SIGKILL, life=0)
    assert "learner 1 is gone (killed by SIGKILL; its log: " in training.err
    assert "training continues with 1 of 2 learners, and it is restarted\n" in training.err
    kill_and_wait(training, signal.SIGSTOP, life=1)
    assert "no sign of life for 10 s (actors.timeout_seconds): it is stopped (SIGSTOP)" in training.err
    training.send(signal.SIGINT)
    assert training.wait(END) == 130
    training.assert_nothing_left()
    lines, summary = training.metrics(), read_summary(training.path)
    assert_monotone(lines)
    half = STEPS_PER_UPDATE // 2  # each learner's part of an update
    for before, after in itertools.pairwise([*lines, summary]):
        updates, steps = (after[name] - before[name] for name in ("updates", "env_steps"))
        assert steps % half == 0
        assert updates * half <= steps <= updates * 2 * half
    state, _ = RunDirectory.open(training.path).checkpoints.restore()
    assert state["learner"]["version"] == state["metrics"]["updates"] == summary["updates"]
    assert state["metrics"]["env_steps"] == summary["env_steps"]


def kill_and_wait(training: Training, how: signal.Signals, life: int) -> None:
    """Kill or stop this life of learner 1, and wait until it is back and the run has trained on."""
    os.kill(pid_of_learner(training, 1, life), how)
    back = "training continues with 2 of 2 learners"
    training.wait_until(lambda: training.err.count(back) > life, "its return", START)
    updates = training.metrics()[-1]["updates"]
    training.wait_until(lambda: training.metrics()[-1]["updates"] > updates, "more updates", START)


def test_ctrl_c_ends_all_while_all_environments_hang(trainings: dict[str, Training]) -> None:
    training = trainings["hanging"]

    def both_hang() -> bool:
        logs = [training.path / "logs" / part / "actor-000.log" for part in (".", "learner-001")]
        return all(log.exists() and "hanging" in log.read_text() for log in logs)

    training.wait_until(both_hang, "the hang", START)
    training.send(signal.SIGINT, group=True)
    assert training.wait(END) == 130
    training.assert_nothing_left()
    assert "Traceback" not in training.err
    assert read_summary(training.path)["outcome"] == "interrupted"


def test_ctrl_c_of_another_learner_ends_all(trainings: dict[str, Training]) -> None:
    training = trainings["asked"]
    training.wait_until(training.metrics, "a line of metrics", START)
    training.descendants()
    os.kill(pid_of_learner(training, 1), signal.SIGINT)
    assert training.wait(END) == 130
    training.assert_nothing_left()
    assert_saved(training.path, "interrupted")
    assert "outcome: interrupted" in (training.path / "logs" / "learner-001.log").read_text()
    assert_resumes(training.path, read_summary(training.path), training.path)
    assert load_config(training.path / "config.yaml").learners.count == 2


def test_a_nan_in_one_learner_stops_all(trainings: dict[str, Training]) -> None:
    training = trainings["broken"]
    assert training.wait(START) == 1
    training.assert_nothing_left()
    assert re.fullmatch(r"failed: loss is nan, .* after 3 updates, in learner 1, .*\n", errors_of(training))
    kept = torch.load(training.path / "broken_batch-learner-001.pt", weights_only=True)
    assert {"batch", "network"} <= kept.keys()
    assert not (training.path / "broken_batch.pt").exists()


@pytest.mark.timeout(400)
def test_four_learners_whose_actors_are_very_unequal_and_die(tmp_path: Path) -> None:
    chance = random.Random(1)
    command = ("faulty:UnequalCatch", "learners=4", "actors.count=5", *ENDLESS)
    with Training(tmp_path / "run", *command) as training:
        training.wait_until(training.metrics, "a line of metrics", 2 * START)
        training.wait_until(lambda: len(actor_pids(training)) == 5, "all actors", START)
        victims = chance.sample(sorted(actor_pids(training)), 2)
        for kills, victim in enumerate(victims, 1):
            updates = training.metrics()[-1]["updates"]
            os.kill(victim, signal.SIGKILL)
            training.wait_until(lambda n=kills: training.err.count("killed by SIGKILL") == n, "its end", START)
            training.wait_until(lambda u=updates: training.metrics()[-1]["updates"] > u + 2, "more updates", START)
        training.send(signal.SIGTERM)
        assert training.wait(END) == 130
        training.assert_nothing_left()
        assert_saved(training.path, "interrupted")
        assert re.search(r"learner [123]: actor 0 failed \(killed by SIGKILL\)", training.err), "learner 0 reports it"


def actor_pids(training: Training) -> set[int]:
    """Of the living actors of all learners."""
    logs = (training.path / "logs").rglob("actor-*.log")
    started = {int(pid) for log in logs for pid in re.findall(r"pid (\d+)\)", log.read_text())}
    return started & {process.pid for process in training.descendants()}


def test_learners_started_one_by_one_train_as_one(tmp_path: Path) -> None:
    """As on several machines: each by its own command, with nothing in common but an address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    steps = 4 * STEPS_PER_UPDATE
    common = ("learners.count=2", f"learners.address=127.0.0.1:{port}", "transport=local", *SIZES)
    further = [sys.executable, "-m", "pronk", "train", "catch", *common, "learners.rank=1"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    environment = os.environ | {"PYTHONPATH": f"{SUPPORT.parents[1]}:{SUPPORT}"}
    with subprocess.Popen(further, cwd=elsewhere, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            run = tmp_path / "run"
            first = (*common, "learners.rank=0", f"run.total_steps={steps}", "run.stop_return=null")
            ended = command_line("train", "catch", *first, "--run-dir", run, "--quiet")
            assert ended.code == 0, ended.err
            assert process.wait(END) == 0
            assert process.stdout is not None
            assert process.stdout.read() == "", "learner 0 is the one to watch"
        finally:
            process.kill()
    summary = read_summary(run)
    assert (summary["outcome"], summary["env_steps"], summary["updates"]) == ("finished", steps, 4)
    assert load_config(run / "config.yaml").learners.model_dump() == {"count": 2, "rank": None, "address": None}
    assert json.loads(json.dumps(read_metrics(run)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_learners_solve_cartpole(seed: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Training(run, "cartpole", "learners=2", "--seed", str(seed), "--quiet") as training:
        assert training.wait(280) == 0, training.err
        training.assert_nothing_left()
    assert read_summary(run)["outcome"] == "solved"
    ended = command_line("eval", run, "--json")
    assert json.loads(ended.out)["mean"] >= 450  # solved by the mean of training; the last policy alone may wobble


@pytest.mark.slow
def test_torchrun(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "pronk"]
    sizes = ("transport=local", *SIZES, "run.stop_return=null", "--run-dir", str(tmp_path / "run"), "--quiet")
    environment = os.environ | {"PYTHONPATH": f"{SUPPORT.parents[1]}:{SUPPORT}"}
    for steps, what in ((6400, ("catch",)), (12_800, (str(tmp_path / "run"), "--resume"))):
        command = [*torchrun, "train", *what, f"run.total_steps={steps}", *sizes]
        subprocess.run(command, env=environment, timeout=200, check=True)
        assert read_summary(tmp_path / "run")["env_steps"] == steps
    began, lines = time.monotonic(), len(read_metrics(tmp_path / "run"))
    with subprocess.Popen(
        [*torchrun, "train", str(tmp_path / "run"), "--resume", "run.total_steps=1e9", *sizes], env=environment
    ) as process:
        while len(read_metrics(tmp_path / "run")) <= lines and time.monotonic() - began < 100:
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) != 0
    assert read_summary(tmp_path / "run")["outcome"] == "interrupted"


@pytest.mark.slow
def test_torchrun_restarts_a_run_whose_learner_was_killed_from_its_checkpoint(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"]
    run = tmp_path / "run"
    settings = ("transport=local", *ENDLESS, "checkpoint.every_seconds=0.5", "--run-dir", str(run), "--quiet")
    environment = os.environ | {"PYTHONPATH": f"{SUPPORT.parents[1]}:{SUPPORT}"}
    command = [*torchrun, "-m", "pronk", "train", "faulty:SlowCatch", *settings]
    with subprocess.Popen(command, env=environment) as process:
        try:
            wait_until(lambda: len(RunDirectory(run).checkpoints.saved()) > 1, START, "checkpoints")
            steps = read_metrics(run)[-1]["env_steps"]
            os.kill(learner_of_torchrun(process.pid, rank="1"), signal.SIGKILL)
            wait_until(lambda: (read_metrics(run) or [{"env_steps": 0}])[-1]["env_steps"] > 3 * steps, START, "more")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) != 0
        finally:
            process.kill()
    assert_monotone(read_metrics(run))


def learner_of_torchrun(agent: int, rank: str) -> int:
    for process in descendants_of(agent):
        if f"\0RANK={rank}\0" in Path(f"/proc/{process.pid}/environ").read_text():
            return process.pid
    raise AssertionError("no such learner")
