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

from pronk.checkpoint import RunDirectory
from pronk.runs import WHOLE, Run, find_runs, is_locked, last_line, read_lines, runs_below
from pronk.types import UserError


def lines_file(path, count, width=0):
    path.write_text("".join(json.dumps({"n": n, "pad": "x" * width}) + "\n" for n in range(count)))
    return path


# ---- reading


def test_torn_and_foreign_lines_are_passed_over(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"n": 1}\n[2]\nnot json\n\xff\xfe\n{"n": 3}\n{"n": 4')
    assert [line["n"] for line in read_lines(path, 10)] == [1, 3]
    assert last_line(path) == {"n": 3}


@pytest.mark.parametrize("content", [None, b"", b'{"n": 1', b"\n\n"])
def test_no_whole_line_is_no_line(tmp_path, content):
    path = tmp_path / "metrics.jsonl"
    if content is not None:
        path.write_bytes(content)
    assert list(read_lines(path, 10)) == []
    assert last_line(path) == {}


def test_of_a_long_file_lines_are_picked_evenly_with_the_first_and_the_last(tmp_path):
    count = 20_000
    path = lines_file(tmp_path / "metrics.jsonl", count, WHOLE // count)
    assert path.stat().st_size > WHOLE
    picked = [line["n"] for line in read_lines(path, 100)]
    assert (picked[0], picked[-1]) == (0, count - 1)
    steps = [b - a for a, b in itertools.pairwise(picked)]
    assert min(steps) > 0
    assert max(steps) <= 2 * count / 100


def test_the_last_line_is_found_however_long_it_is(tmp_path):
    path = lines_file(tmp_path / "metrics.jsonl", 3, 100_000)
    assert last_line(path)["n"] == 2


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
    assert settings["loss.discount"] == 0.99  # as by default


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


def test_a_training_is_running_until_it_is_killed(tmp_path):
    (tmp_path / "runs").mkdir()
    endless = ["transport=local", "run.total_steps=100000000", "run.stop_return=null"]
    with Training(tmp_path / "runs" / "one", "catch", *SIZES, *endless) as it:
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
    run.go_on(run.load_config(), updates=1)
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
    assert [run.name for run in runs_below(tmp_path / "elsewhere")] == ["c"]
    assert [run.name for run in runs_below(tmp_path / "runs")] == ["b", "a"]
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
    assert header.split() == ["run", "state", "steps", "best", "last", "steps/s", "age"]
    assert first.split()[:6] == ["empty-one", "killed", "0", "-", "-", "-"]
    assert second.split() == ["solved-one", "solved", "3,000", "30.0", "25.5", "1,000", "2", "h"]
