"""Ctrl-C, SIGTERM and SIGHUP: a checkpoint, a summary, exit code 130, and nothing left running."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from processes import (
    SIZES,
    SUPPORT,
    Training,
    assert_resumes,
    assert_saved,
    read_metrics,
    read_summary,
    trainings_at_once,
    wait_until,
)

OFTEN = "run.log_every_seconds=0.1"
SOON = 60.0  # seconds: a busy machine takes its time, and what hangs here hangs for an hour


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Training]]:
    folder = tmp_path_factory.mktemp("interrupt")
    endless = (OFTEN, *SIZES, "actors.count=1", "run.stop_return=null", "run.total_steps=1e9")
    commands = {
        "playing": ("faulty:SlowCatch", *endless),
        "hanging": ("faulty:HangsInStep", "env.kwargs.after=200", *endless),
        "hanging_here": ("faulty:HangsInStep", "env.kwargs.after=200", "transport=local", *endless),
        "hanging_learner": ("faulty:SlowCatch", "loss=faulty:HangingLoss", "transport=local", *endless),
        "hanging_at_once": ("faulty:HangsInInit", "env.kwargs.after=0", *endless),
    }
    nohup = Training(folder / "nohup", "faulty:SlowCatch", "transport=local", *endless, within=("nohup",))
    with nohup, trainings_at_once(folder, commands) as started:
        yield started | {"nohup": nohup}


def assert_orderly_end(training: Training) -> None:
    assert training.wait(SOON) == 130
    training.assert_nothing_left()
    assert "Traceback" not in training.err
    assert_saved(training.path, "interrupted")


def test_ctrl_c_of_a_terminal_ends_in_good_order_and_resume_goes_on(trainings: dict[str, Training]) -> None:
    training = trainings["playing"]
    training.wait_for_updates()
    training.send(signal.SIGINT, group=True)
    assert_orderly_end(training)
    assert "--resume" in training.out
    assert "saving; Ctrl-C again abandons\n" in training.err
    other = ("catch", "transport=local", "--run-dir", training.path)  # how data travels may change between resumes
    assert_resumes(training.path, read_summary(training.path), *other)


def test_sigterm_ends_in_good_order_even_while_an_environment_hangs(trainings: dict[str, Training]) -> None:
    training = trainings["hanging"]
    training.wait_until(lambda: training.lives(0) and "hanging" in training.lives(0)[0].log, "the hang")
    training.send(signal.SIGTERM)
    assert_orderly_end(training)
    assert "saving (SIGTERM)\n" in training.err


def test_under_nohup_a_hang_up_is_ignored(trainings: dict[str, Training]) -> None:
    training = trainings["nohup"]
    training.wait_for_updates()
    training.send(signal.SIGHUP)
    lines = len(training.metrics())
    training.wait_until(lambda: len(training.metrics()) > lines + 5, "more updates")
    training.send(signal.SIGTERM)
    assert_orderly_end(training)


# Makes its standard input the controlling terminal of its session, then becomes the program.
IN_A_TERMINAL = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run under nohup, which ignores it
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_a_terminal_that_is_closed_ends_the_run_in_good_order(tmp_path: Path) -> None:
    """As when an SSH connection is lost: SIGHUP comes, and every print fails from then on."""
    run = tmp_path / "run"
    ours, theirs = pty.openpty()
    settings = ("faulty:SlowCatch", OFTEN, *SIZES, "actors.count=1", "run.total_steps=1e9", "run.stop_return=null")
    command = [sys.executable, "-m", "pronk", "train", *settings, "--run-dir", str(run)]
    environment = {**os.environ, "PYTHONPATH": f"{SUPPORT}:{os.environ.get('PYTHONPATH', '')}", "TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-c", IN_A_TERMINAL, *command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        os.set_blocking(ours, False)

        def has_begun() -> bool:
            with suppress(BlockingIOError):
                os.read(ours, 1 << 16)  # a display that nobody reads blocks after some kilobytes
            return len(read_metrics(run)) >= 3 or process.poll() is not None

        wait_until(has_begun, SOON, "some metrics")
        assert process.poll() is None
        os.close(ours)
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGHUP)  # a shell sends a second one
        assert process.wait(SOON) == 130
    finally:
        process.kill()
        process.wait()
    assert_saved(run, "interrupted")


def test_second_ctrl_c_ends_at_once_even_where_the_learner_itself_hangs(trainings: dict[str, Training]) -> None:
    training = trainings["hanging_learner"]
    training.wait_until(lambda: "hanging" in training.out, "the hang")
    training.send(signal.SIGINT)
    time.sleep(1.0)  # two at once count as one
    assert training.running
    training.send(signal.SIGINT)
    assert training.wait(SOON) == 130
    training.assert_nothing_left()


def test_ctrl_c_while_python_still_imports_leaves_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pronk", "train", "catch", "run.stop_return=null", "run.total_steps=1e9"]
    started = []
    for number in range(6):
        with open(tmp_path / f"{number}.err", "wb") as err:
            started.append(subprocess.Popen([*command, "--run-dir", str(tmp_path / str(number))], stderr=err))
        time.sleep(0.1)
    time.sleep(0.5)
    try:
        for process in started:  # after 0.6 to 1.1 s
            process.send_signal(signal.SIGINT)
        for number, process in enumerate(started):
            assert process.wait(SOON) in (130, -signal.SIGINT)  # the latter: Python itself was not up yet
            assert "Traceback" not in (tmp_path / f"{number}.err").read_text()
    finally:
        for process in started:
            process.kill()


@pytest.mark.parametrize("options", [(), ("--quiet",)])
def test_a_reader_that_goes_away_does_not_end_the_run(options: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "run"
    short = ("transport=local", OFTEN, "run.stop_return=null", "run.total_steps=6400", "learner.extra_lag=1")
    command = [sys.executable, "-m", "pronk", "train", "catch", *short, "--run-dir", str(path), *options]
    reader, writer = os.pipe()
    os.close(reader)  # nobody reads, from the first line on
    ended = subprocess.run(command, stdout=writer, stderr=writer, timeout=SOON, check=False)
    os.close(writer)
    assert ended.returncode == 0
    assert_saved(path, "finished")


def test_ctrl_c_ends_in_good_order_where_the_learner_plays_itself(trainings: dict[str, Training]) -> None:
    training = trainings["hanging_here"]
    training.wait_until(lambda: "hanging" in training.out, "the hang")
    training.send(signal.SIGINT)
    assert_orderly_end(training)


def test_ctrl_c_ends_a_run_whose_environment_hangs_before_anything_started(trainings: dict[str, Training]) -> None:
    training = trainings["hanging_at_once"]
    training.wait_until(training.descendants, "the process that tries the environment, which hangs there")
    training.send(signal.SIGINT)
    assert training.wait(SOON) == 130
    assert "Traceback" not in training.err
    training.assert_nothing_left()
