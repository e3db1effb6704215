"""A learner that hangs is ended with its stack and the cause, if a command runs it; else it is only reported."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from processes import (
    SIZES,
    Training,
    assert_monotone,
    assert_saved,
    command_line,
    read_metrics,
    read_summary,
    start_pronk,
)

import pronk

LIMIT = 5
SETTINGS = (
    *(*SIZES, "actors.count=1", f"learner.timeout_seconds={LIMIT}"),
    *("run.log_every_seconds=0.1", "checkpoint.every_seconds=0.1", "run.stop_return=null", "run.total_steps=1e9"),
)


def hanging(file: Path, **how: bool) -> tuple[str, ...]:
    return ("loss=hanging:Hangs", *(f"loss.kwargs.{name}={value}" for name, value in {"file": file, **how}.items()))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("busy", [False, True], ids=["in a call", "in a loop"])
def test_a_learner_that_hangs_is_ended_with_its_stack_and_resumed(tmp_path: Path, busy: bool) -> None:
    file = tmp_path / "hang"
    with Training(tmp_path / "run", "catch", *SETTINGS, *hanging(file, busy=busy)) as training:
        training.wait_for_updates()
        training.wait_until(lambda: len(list((training.path / "checkpoints").glob("*.pt"))) > 2, "checkpoints")
        training.send(signal.SIGSTOP)  # as a laptop that sleeps
        time.sleep(LIMIT + 2 if busy else 0)
        training.send(signal.SIGCONT)
        before = training.metrics()[-1]["updates"]
        training.wait_until(lambda: training.metrics()[-1]["updates"] > before + 5, "more updates")
        file.touch()
        assert training.wait(60) == 1
        training.assert_nothing_left()
    cause = f"the learner has made no progress for {LIMIT} s (learner.timeout_seconds); it was here:"
    assert training.err.count(f"failed: {cause}\n") == 1
    assert "in hang_for_ever" in training.err
    summary = read_summary(training.path)
    assert summary["outcome"] == "failed"
    assert summary["failure"].startswith(cause)
    assert summary["env_steps"] == training.metrics()[-1]["env_steps"]
    assert f"`--resume` continues from the last one, {summary['checkpoint']}" in training.err

    steps = summary["env_steps"] + 20 * 320
    ended = command_line("train", training.path, "--resume", "--quiet", f"run.total_steps={steps}")
    assert ended.code == 0, ended.err
    assert_saved(training.path, "finished")
    assert_monotone(read_metrics(training.path))


@pytest.mark.timeout(240)
def test_a_further_learner_that_hangs_is_restarted(tmp_path: Path) -> None:
    file = tmp_path / "hang"
    settings = (*SETTINGS, "learners=2", "actors.count=2", *hanging(file, further=True))
    with Training(tmp_path / "run", "catch", *settings) as training:
        training.wait_for_updates()
        file.touch()
        training.wait_until(lambda: "training continues with 1 of 2 learners" in training.err, "its end")
        training.wait_until(lambda: "training continues with 2 of 2 learners" in training.err, "its return")
        before = training.metrics()[-1]["updates"]
        training.wait_until(lambda: training.metrics()[-1]["updates"] > before + 5, "more updates")
        training.send(signal.SIGINT)
        assert training.wait() == 130
    assert "learner 1 is gone (killed by SIGKILL; its log: " in training.err
    assert "in hang_for_ever" in (training.path / "logs" / "learner-001.log").read_text()


@pytest.mark.timeout(240)
def test_an_output_that_nobody_reads_does_not_keep_the_run_from_ending(tmp_path: Path) -> None:
    """The learner waits for room in the pipe, and so would whatever prints the cause: it is in the summary."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, 1031, 4096)  # F_SETPIPE_SZ
    arguments = ("train", "catch", *SETTINGS, "run.log_every_seconds=0.02", "--run-dir", str(tmp_path / "run"))
    with os.fdopen(reader), os.fdopen(writer, "wb") as pipe:
        process = start_pronk(*arguments, stdout=pipe, stderr=pipe)
        try:
            assert process.wait(120) == 1
        finally:
            process.kill()
    assert "no progress" in read_summary(tmp_path / "run")["failure"]


def test_a_program_that_calls_the_library_is_not_ended(tmp_path: Path) -> None:
    said: list[str] = []

    def wait_for_input(line: dict[str, Any]) -> None:
        time.sleep(0.0 if said else 4.0)

    settings = ("transport=local", "actors.count=1", "run.total_steps=5000", "actors.timeout_seconds=2")
    run, limit = tmp_path / "run", "learner.timeout_seconds=1"
    summary = pronk.train("catch", [*settings, limit], run_dir=run, on_metrics=wait_for_input, say=said.append)
    assert summary["outcome"] in ("finished", "solved")
    assert [one for one in said if "the learner has made no progress for 2 s; its stack:\n" in one]
    assert "in wait_for_input" in "".join(said)
