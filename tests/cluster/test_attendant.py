"""Real processes: `pronk` commands that an attendant starts, and their ends."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from processes import descendants_of, is_running, wait_until

from pronk.cluster.attendant import Attendant
from pronk.cluster.base import FILES, Job

pytestmark = pytest.mark.timeout(120)
TRAIN = ("train", "catch", "transport=local", "run.total_steps=1e9", "run.stop_return=null")


def hear_until(attendant, wanted, seconds=60):
    events = []
    wait_until(lambda: events.extend(attendant.events()) or any(map(wanted, events)), seconds, "an event")
    return events


def test_it_passes_on_what_the_process_says_and_how_it_ends(tmp_path):
    attendant = Attendant(str(tmp_path))
    attendant.start(Job(["show", f"{FILES}/mine.yaml"], files={"mine.yaml": "base: catch\n"}).plain())
    events = hear_until(attendant, lambda event: "exit" in event)
    assert "started" in events[0]
    assert any("env" in event.get("line", "") for event in events)
    assert events[-1] == {"exit": 0}
    assert attendant.ended


def test_a_mistake_is_an_exit_code_with_its_line(tmp_path):
    attendant = Attendant(str(tmp_path))
    attendant.start(Job(["train", "cartpol"]).plain())
    events = hear_until(attendant, lambda event: "exit" in event)
    assert events[-1] == {"exit": 2}
    assert any("cartpole" in event.get("line", "") for event in events)


def test_the_run_directory_travels_and_a_stop_is_orderly(tmp_path):
    attendant = Attendant(str(tmp_path))
    attendant.start(Job([*TRAIN, "--run-dir", "run"], run="run").plain())
    events = hear_until(attendant, lambda event: event.get("file") == "metrics.jsonl")
    attendant.stop()
    events += hear_until(attendant, lambda event: "exit" in event)
    assert events[-1] == {"exit": 130}
    sent = {event["file"] for event in events if "file" in event}
    assert {"config.yaml", "metrics.jsonl", "summary.json"} <= sent
    assert any(name.startswith("checkpoints/") for name in sent)


def test_a_shared_run_directory_does_not_travel(tmp_path):
    (tmp_path / ".marker").touch()
    attendant = Attendant(str(tmp_path))
    attendant.start(Job([*TRAIN, "--run-dir", "run"], run="run", marker=".marker").plain())
    wait_until((tmp_path / "run" / "metrics.jsonl").exists, 60, "metrics")
    attendant.stop()
    events = hear_until(attendant, lambda event: "exit" in event)
    assert events[0]["shared"]
    assert not any("file" in event for event in events)


@pytest.fixture
def attending(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "pronk", "attend"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        start_new_session=True,
    )
    yield process
    for child in descendants_of(process.pid):
        if is_running(child):
            os.kill(child.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def start_training(attending):
    assert "here" in json.loads(attending.stdout.readline())
    job = Job([*TRAIN, "--run-dir", "run"]).plain()
    attending.stdin.write(json.dumps({"start": job}).encode() + b"\n")
    attending.stdin.flush()
    assert "started" in json.loads(attending.stdout.readline())
    time.sleep(1)
    return descendants_of(attending.pid)


def test_when_the_line_is_cut_the_process_ends_in_order(attending, tmp_path):
    started = start_training(attending)
    wait_until((tmp_path / "run" / "metrics.jsonl").exists, 60, "metrics")
    attending.stdin.close()
    wait_until(lambda: attending.poll() is not None, 60, "its end")
    assert not any(map(is_running, started))
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["outcome"] == "interrupted"
    assert not list(tmp_path.glob("pronk-*")), "its private files are gone"


def test_a_killed_attendant_takes_the_process_with_it(attending):
    started = start_training(attending)
    attending.kill()
    wait_until(lambda: not any(map(is_running, started)), 20, "the end of its process")
