"""Real processes: `pronk` commands that a process runner starts, and their ends."""

import os
import signal
import subprocess
import sys
import time

import pytest
from processes import descendants_of, is_running, read_summary, wait_until

from pronk.cluster.process_runner import FILES, ProcessRunner
from pronk.processes.channel import Channel
from pronk.processes.messages import (
    Alive,
    Exited,
    Failed,
    FileChunk,
    Listening,
    Output,
    RunCommand,
    RunnerReady,
    Started,
)
from pronk.runs.directory import RunDirectory

pytestmark = pytest.mark.timeout(400)
SECONDS = 240  # a busy machine takes its time to import torch
ENDLESS = ("run.total_steps=1e9", "run.stop_return=null")
TRAIN = ("train", "catch", "transport=local", *ENDLESS)


def receive_until(runner, wanted, seconds=SECONDS):
    """Return all messages up to and including the first of a type, or that a function accepts."""
    accepts = wanted if callable(wanted) and not isinstance(wanted, type) else lambda one: isinstance(one, wanted)
    messages = []
    wait_until(lambda: messages.extend(runner.messages()) or any(map(accepts, messages)), seconds, "a message")
    return messages


def output_of(messages):
    return "\n".join(message.line for message in messages if isinstance(message, Output))


def test_it_forwards_the_output_and_reports_the_exit(tmp_path):
    runner = ProcessRunner(str(tmp_path))
    runner.run(RunCommand(["show", f"{FILES}/mine.yaml"], files={"mine.yaml": "base: catch\n"}))
    messages = receive_until(runner, Exited)
    assert isinstance(messages[0], Started)
    assert "env" in output_of(messages)
    assert messages[-1] == Exited(0)
    assert runner.ended


def test_a_mistake_is_a_message_of_its_own(tmp_path):
    runner = ProcessRunner(str(tmp_path))
    runner.run(RunCommand(["train", "cartpol"]))
    messages = receive_until(runner, Exited)
    assert messages[-1] == Exited(2)
    failed = next(message for message in messages if isinstance(message, Failed))
    assert failed.mistake
    assert "cartpole" in failed.cause


def test_a_learner_reports_where_it_listens(tmp_path):
    runner = ProcessRunner(str(tmp_path))
    runner.run(RunCommand(["learner", "catch", "gateway.address=127.0.0.1:0", "--run-dir", "run", "--quiet", *ENDLESS]))
    listening = next(one for one in receive_until(runner, Listening) if isinstance(one, Listening))
    assert listening.address == (tmp_path / "run" / "address").read_text().strip()
    runner.end(10)


def test_the_run_directory_travels_and_stop_saves(tmp_path):
    runner = ProcessRunner(str(tmp_path))
    runner.run(RunCommand([*TRAIN, "--run-dir", "run"], run="run"))
    messages = receive_until(runner, lambda one: isinstance(one, FileChunk) and one.path == "metrics.jsonl")
    runner.stop()
    messages += receive_until(runner, Exited)
    assert messages[-1] == Exited(130)
    sent = {message.path for message in messages if isinstance(message, FileChunk)}
    assert {"config.yaml", "metrics.jsonl", "summary.json"} <= sent
    assert any(name.startswith("checkpoints/") for name in sent)


def test_a_shared_run_directory_does_not_travel(tmp_path):
    (tmp_path / ".marker").touch()
    runner = ProcessRunner(str(tmp_path))
    runner.run(RunCommand([*TRAIN, "--run-dir", "run"], run="run", marker=".marker"))
    started = receive_until(runner, Started)[0]
    wait_until((tmp_path / "run" / "metrics.jsonl").exists, SECONDS, "metrics")
    runner.stop()
    assert started.shared
    assert not any(isinstance(message, FileChunk) for message in receive_until(runner, Exited))


def test_a_restart_waits_for_the_lock_of_the_run_and_can_be_stopped(tmp_path):
    (tmp_path / "run").mkdir()
    with RunDirectory(tmp_path / "run").locked():
        runner = ProcessRunner(str(tmp_path))
        runner.run(RunCommand(["presets"], run="run", resume_arguments=["presets"]))
        assert runner.messages() == []
        runner.stop()
        assert runner.messages() == [Exited(130)]


@pytest.fixture
def served(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "pronk", "runner"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        start_new_session=True,
    )
    yield process
    process.stdout.close()
    for child in descendants_of(process.pid):
        if is_running(child):
            os.kill(child.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def start_training(served):
    channel = Channel(os.dup(served.stdout.fileno()), os.dup(served.stdin.fileno()))
    served.stdin.close()
    messages = iter(channel)
    assert isinstance(next(messages), RunnerReady)
    channel.send(RunCommand([*TRAIN, "--run-dir", "run"]))
    assert isinstance(next(messages), Started)
    time.sleep(1)
    started = descendants_of(served.pid)
    assert started
    return channel, started


def test_a_closed_connection_ends_the_process_with_a_checkpoint(served, tmp_path):
    channel, started = start_training(served)
    metrics = tmp_path / "run" / "metrics.jsonl"
    wait_until(lambda: channel.send(Alive()) or metrics.exists(), SECONDS, "metrics")
    channel.close()
    wait_until(lambda: served.poll() is not None, 60, "its end")
    assert not any(map(is_running, started))
    assert read_summary(tmp_path / "run")["outcome"] == "interrupted"
    assert not list(tmp_path.glob("pronk-*")), "its private files are gone"


def test_a_killed_runner_takes_the_process_with_it(served):
    channel, started = start_training(served)
    served.kill()
    wait_until(lambda: not any(map(is_running, started)), 20, "the end of its process")
    assert served.wait() == -signal.SIGKILL
    channel.close()
