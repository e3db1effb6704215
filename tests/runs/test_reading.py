import fcntl
import itertools
import json
import os
import signal
import threading
import time

import pytest
from made_runs import made_run
from processes import SIZES, Training, command_line

from pronk.runs import reading
from pronk.runs.directory import RunDirectory
from pronk.runs.reading import (
    COMPLETE_BYTES,
    Run,
    cause_line,
    find_run_path,
    find_runs,
    is_locked,
    return_text,
    runs_below,
)
from pronk.types import UserError

# ---- reading


def test_of_a_long_record_lines_are_picked_evenly_and_of_a_shorter_one_none_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LINES", 100)
    run, count = made_run(tmp_path / "run"), 20_000
    for width, whole in ((COMPLETE_BYTES // count - 50, True), (COMPLETE_BYTES // count, False)):
        text = "".join(json.dumps({"n": n, "pad": "x" * width}) + "\n" for n in range(count))
        assert (len(text) <= COMPLETE_BYTES) == whole
        for name in ("metrics.jsonl", "eval.jsonl"):
            (run / name).write_text(text)
        read = Run(run)
        assert read.last["n"] == count - 1
        picked = [line["n"] for line in read.metrics]
        assert picked == [line["n"] for line in read.evaluations]
        assert (picked[0], picked[-1]) == (0, count - 1)
        steps = [later - earlier for earlier, later in itertools.pairwise(picked)]
        assert min(steps) > 0
        assert max(steps) <= (1 if whole else 2 * count / 100)


def test_a_run_that_has_not_begun_is_empty(tmp_path):
    run = Run(made_run(tmp_path / "run"))
    assert (run.last, run.metrics, run.evaluations, run.best_return) == ({}, [], [], None)


def test_the_best_return_counts_full_windows_first(tmp_path):
    # 50 episodes per line: only from the third line on are there 100.
    assert Run(made_run(tmp_path / "a", returns=[90.0, 80.0, 10.0, 30.0, 20.0])).best_return == 30.0
    assert Run(made_run(tmp_path / "b", returns=[90.0, 80.0])).best_return == 90.0
    assert Run(made_run(tmp_path / "c", returns=[None])).best_return is None


def test_a_run_of_another_version_is_read(tmp_path):
    path = made_run(tmp_path / "run", returns=[1.0])
    (path / "config.yaml").write_text("env: {id: Old-v0}\nno_longer: {there: 3}\n")
    settings = Run(path).settings
    assert (settings["env.id"], settings["no_longer.there"]) == ("Old-v0", 3)
    assert settings["loss.baseline_cost"] == 0.5  # as by default


# ---- states


@pytest.mark.parametrize("outcome", ["finished", "solved", "interrupted", "failed"])
def test_the_state_is_the_outcome(tmp_path, outcome):
    assert Run(made_run(tmp_path / "run", returns=[1.0], outcome=outcome)).state == outcome


def test_a_run_that_went_on_after_its_summary_and_said_nothing_was_killed(tmp_path):
    path = made_run(tmp_path / "run", returns=[1.0, 2.0], outcome="interrupted")
    assert Run(path).state == "interrupted"
    with open(path / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"updates": 7, "env_steps": 9_000}) + "\n")
    assert Run(path).state == "killed"
    (path / "summary.json").write_text("{")
    assert Run(path).state == "killed"


def test_an_outcome_of_another_version_is_unknown(tmp_path):
    path = made_run(tmp_path / "run", returns=[1.0], outcome="transcended")
    assert (Run(path).state, Run(path).failure) == ("unknown", None)


def test_a_failed_run_has_a_cause(tmp_path):
    path = made_run(tmp_path / "run", returns=[1.0], outcome="failed", failure="the loss is nan")
    assert Run(path).failure == Run(path).overview()["failure"] == "the loss is nan"
    assert Run(made_run(tmp_path / "older", returns=[1.0], outcome="failed")).failure is None


def test_a_training_is_running_until_it_is_killed(tmp_path):
    (tmp_path / "runs").mkdir()
    endless = ["transport=local", "run.total_steps=100000000", "run.stop_return=null"]
    with Training(tmp_path / "runs" / "one", "faulty:SlowCatch", *SIZES, *endless) as it:
        it.wait_until(it.metrics, "the first line of metrics", seconds=100)
        assert Run(it.path).state == "running"
        listed = json.loads(command_line("runs", tmp_path / "runs", "--json").out)
        assert [(row["name"], row["state"]) for row in listed] == [("one", "running")]
        it.send(signal.SIGKILL)
        it.wait()
        assert Run(it.path).state == "killed"
        assert Run(it.path).overview()["env_steps"] > 0


def test_asking_does_not_keep_a_training_from_starting(tmp_path):
    run = RunDirectory(made_run(tmp_path / "run"))
    descriptor = os.open(run.path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    asking = threading.Timer(0.03, os.close, [descriptor])
    asking.start()
    with run.locked():
        assert is_locked(run.path)
    asking.join()
    assert not is_locked(run.path)


def test_a_resumed_run_has_no_summary_until_it_ends(tmp_path):
    run = RunDirectory(made_run(tmp_path / "run", returns=[1.0, 2.0]))
    run.prepare_resume(run.load_config(), updates=1)
    assert not run.summary.exists()
    assert Run(run.path).state == "killed"


# ---- finding


def test_runs_are_found_once_by_name_by_path_and_by_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("runs/a", "runs/b", "elsewhere/deep/c"):
        made_run(tmp_path / name)
    (tmp_path / "runs" / "not-a-run").mkdir()
    os.utime("runs/a/config.yaml", (1, 1))
    assert [run.name for run in find_runs(["b", "runs", "last"])] == ["b", "a"]
    made_run(tmp_path / "runs" / "sweep" / "group" / "newest")
    assert find_run_path("last").name == "newest"
    os.utime("runs/sweep/group/newest/config.yaml", (0, 0))
    assert [run.name for run in runs_below(tmp_path / "elsewhere")] == ["c"]
    assert [run.name for run in runs_below(tmp_path / "runs")] == ["b", "a", "newest"]
    assert [run.name for run in runs_below(tmp_path / "runs" / "a")] == ["a"]
    for name, told in [("nope", "no run directory nope"), ("runs/not-a-run", "not a run directory")]:
        with pytest.raises(UserError, match=told):
            find_runs([name])


# ---- the table


def test_the_table_tells_what_there_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    assert "no runs in runs/" in command_line("runs").out
    assert command_line("runs", "nowhere").code == 2
    made_run(tmp_path / "runs" / "solved-one", returns=[1.0, 2.0, 30.0, 25.5], outcome="solved")
    made_run(tmp_path / "runs" / "empty-one", outcome=None)
    os.utime("runs/solved-one/config.yaml", (time.time() - 7200,) * 2)
    header, first, second = command_line("runs").out.splitlines()
    assert header.split() == ["run", "environment", "state", "steps", "best", "last", "steps/s", "age"]
    assert first.split()[:7] == ["empty-one", "CartPole-v1", "killed", "0", "-", "-", "-"]
    assert second.split() == ["solved-one", "CartPole-v1", "solved", "3,000", "30.0", "25.5", "1,000", "2", "h"]


def test_no_name_is_split_or_cut(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    name = "a-name-that-is-longer-than-the-terminal-is-wide-" * 3
    made_run(tmp_path / name, returns=[0.95533])
    _, row = command_line("runs", tmp_path).out.splitlines()
    assert row.split()[0] == name
    assert "0.955" in row


def test_a_return_has_as_many_digits_as_say_something():
    assert [return_text(value) for value in (498.72, 0.95533, -0.02214, 9.354, 1193.4, None)] == [
        *("498.7", "0.955", "-0.0221", "9.35", "1,193.4", "-")
    ]
    assert (return_text(0.8234, 0.0791), return_text(0.8234, 87.2)) == ("0.823", "0.8")


def test_the_table_says_why_a_run_failed(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    made_run(
        tmp_path / "bad", returns=[1.0], outcome="failed", failure="actor 0: ValueError: no bananas\nits traceback"
    )
    *_, cause = command_line("runs", tmp_path).out.splitlines()
    assert cause == "bad failed: actor 0: ValueError: no bananas"
    assert json.loads(command_line("runs", tmp_path / "bad", "--json").out)[0]["failure"].endswith("its traceback")


def test_a_failure_in_one_line_names_the_error() -> None:
    trace = "actor 1 failed 3 times in a row: Traceback (most recent call last):\n  File ...\nValueError: no bananas\n"
    assert cause_line(trace) == "actor 1 failed 3 times in a row: ValueError: no bananas"
    assert cause_line("the disk is full\nand more") == "the disk is full"
    assert cause_line("") == "unknown cause"
