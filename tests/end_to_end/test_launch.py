"""`pronk launch` over a real sshd on the loopback: three names for this machine are three hosts."""

import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from processes import (
    SUPPORT,
    Training,
    command_line,
    descendants_of,
    is_running,
    read_metrics,
    read_summary,
    wait_until,
)
from sshd import MAY_LOG_IN, SSHD, running_sshd

import pronk

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(SSHD is None, reason="sshd is not installed"),
    pytest.mark.skipif(not MAY_LOG_IN, reason="this user may not log in"),
]
# The tree under test. sshd does not pass on the environment: without OMP_NUM_THREADS every process would start threads.
PROGRAM = f"env OMP_NUM_THREADS=1 PYTHONPATH={Path(pronk.__file__).parents[1]} {sys.executable} -m pronk"
SMALL = ("actors.envs=16", "actors.unroll_length=20", "learner.batch_size=16", "actors.slots=1")
SLOW = "faulty:SlowCatch"  # a run that waits for other processes should not take their cores
ENDLESS = ("run.total_steps=1e9", "run.stop_return=null", "checkpoint.every_seconds=1")


@pytest.fixture
def hosts(tmp_path):
    """One learner, three actors on two hosts."""
    folder, there = tmp_path / "sshd", tmp_path / "there"
    folder.mkdir()
    there.mkdir()
    shutil.copy(SUPPORT / "faulty.py", there)  # for SLOW
    with running_sshd(folder) as sshd:
        rows = [("learner", "alpha", 1), ("actor", "beta", 1), ("actor", "gamma", 2)]
        lines = [f"{role},{host},{sshd.port},{sshd.user},{sshd.key},,{count}" for role, host, count in rows]
        (tmp_path / "hosts.csv").write_text("\n".join(["role,host,port,user,key file,devices,count", *lines, ""]))
        yield Hosts(tmp_path, there, sshd)
        wait_until(lambda: not descendants_of(sshd.process.pid), 60, "the end of everything on the hosts")


class Hosts:
    """What `pronk launch` is told."""

    def __init__(self, folder, there, sshd):
        self.folder, self.there, self.sshd = folder, there, sshd
        self.file = folder / "hosts.csv"
        self.heading, *self.rows = self.file.read_text().splitlines()

    def only(self, *rows):
        """Use these rows of the file alone: every process costs seconds to start."""
        kept = [row for row in self.rows if row.startswith(rows)]
        self.file.write_text("\n".join([self.heading, *kept, ""]))

    def launch(self, *arguments, relative=True):
        return Training(
            self.folder / "run",
            *arguments,
            *("--hosts", str(self.folder / "hosts.csv"), "--ssh-config", str(self.sshd.config)),
            *("--program", PROGRAM, "--remote-dir", str(self.there)),
            command="launch",
            relative=relative,
        )

    def running(self, command):
        """Processes on the hosts that run `pronk COMMAND`."""
        found = []
        for process in descendants_of(self.sshd.process.pid):
            with contextlib.suppress(OSError), open(f"/proc/{process.pid}/cmdline", "rb") as file:
                words = file.read().decode().split("\0")
                if "pronk.cluster.process_runner" in " ".join(words) and command in words:
                    found.append(process)
        return found


def test_a_run_on_three_hosts_learns_and_ends(hosts):
    with hosts.launch("catch", *SMALL, "run.stop_return=0") as launch:
        assert launch.wait(300) == 0
        launch.assert_nothing_left()
    assert "actors: 3 of 3 up (beta 1, gamma 2)" in launch.out
    assert "Solved." in launch.out
    run = hosts.folder / "run"
    assert read_summary(run)["outcome"] == "solved"
    assert (hosts.there / "run").is_dir(), "the learner's own, of which ours is a copy"
    assert read_metrics(run) == read_metrics(hosts.there / "run")
    assert list((run / "checkpoints").glob("*.pt"))
    logs = {path.stem: path.read_text() for path in (run / "logs" / "hosts").iterdir()}
    assert set(logs) == {"learner-0", "actor-000", "actor-001", "actor-002"}
    assert all("joined" in text for name, text in logs.items() if name != "learner-0")
    config = (run / "config.yaml").read_text()
    assert "PRIVATE KEY" not in config


def test_what_dies_comes_back_and_ctrl_c_leaves_nothing(hosts):
    hosts.only("learner", "actor,gamma")  # that has two
    with hosts.launch(SLOW, *SMALL, *ENDLESS) as launch:
        launch.wait_until(lambda: len(hosts.running("actor")) == 2 and launch.metrics(), "the start", 120)
        os.kill(hosts.running("actor")[0].pid, signal.SIGKILL)
        launch.wait_until(lambda: "killed by SIGKILL" in launch.err, "that it says so", 60)
        launch.wait_until(lambda: len(hosts.running("actor")) == 2, "that the actor is back", 120)
        launch.wait_until(lambda: list((hosts.folder / "run/checkpoints").glob("*.pt")), "a checkpoint", 60)
        os.kill(hosts.running("learner")[0].pid, signal.SIGKILL)
        launch.wait_until(lambda: "restarting the learners from the newest checkpoint" in launch.err, "a word", 60)
        launch.wait_until(lambda: launch.err.count("listens on") == 2, "that the learner is back", 120)
        before = launch.metrics()[-1]["env_steps"]
        launch.wait_until(lambda: launch.metrics()[-1]["env_steps"] > before + 2000, "that it goes on", 120)
        everything = descendants_of(hosts.sshd.process.pid)
        launch.send(signal.SIGINT)
        assert launch.wait(120) == 130
        launch.assert_nothing_left()
        wait_until(lambda: not any(map(is_running, everything)), 60, "the end of everything on the hosts")
    run = hosts.folder / "run"
    assert read_summary(run)["outcome"] == "interrupted"
    assert "pronk launch run --resume" in launch.out
    steps = read_summary(run)["env_steps"]
    hosts.only("learner", "actor,beta")
    with hosts.launch("run", "--resume", f"run.total_steps={steps + 2000}") as launch:
        assert launch.wait(200) == 0
    assert read_summary(run)["env_steps"] >= steps + 2000
    here = command_line(
        "train", run, "--resume", f"run.total_steps={steps + 4000}", "transport=local", "actors.count=1"
    )
    assert here.code == 0, "one machine alone can go on, too"


def test_when_the_launcher_is_killed_the_hosts_tidy_up(hosts):
    hosts.only("learner", "actor,beta")
    with hosts.launch(SLOW, *SMALL, *ENDLESS) as launch:
        launch.wait_until(lambda: launch.metrics(), "the start", 120)
        everything = descendants_of(hosts.sshd.process.pid)
        launch.send(signal.SIGKILL)
        wait_until(lambda: not any(map(is_running, everything)), 60, "the end of everything on the hosts")
    assert read_summary(hosts.there / "run")["outcome"] == "interrupted"


def test_machines_that_share_a_disk_share_the_run_directory(hosts):
    hosts.only("learner", "actor,beta")
    (hosts.there / "faulty.py").unlink()
    with hosts.launch("catch", *SMALL, "run.total_steps=8000", relative=False) as launch:
        assert launch.wait(300) == 0
    assert read_summary(hosts.folder / "run")["env_steps"] >= 8000 or "Solved" in launch.out
    assert (hosts.folder / "run/logs/hosts/learner-0.log").exists()
    assert not list(hosts.there.iterdir())
    assert not list(hosts.folder.glob(".run.*")), "the marker is gone"


def test_a_host_that_does_not_let_us_in_is_named(hosts):
    hosts.file.write_text(hosts.file.read_text().replace("user_key", "host_key"))
    with hosts.launch("catch", *SMALL) as launch:
        assert launch.wait(60) == 1
    assert "failed: learner 0 on alpha:" in launch.err
    assert "Permission denied" in launch.err
    assert "Traceback" not in launch.err


def test_a_mistake_that_only_the_learner_finds_is_told_once(hosts):
    hosts.only("learner", "actor,beta")
    with hosts.launch("catch", *SMALL, "network.torso=nature") as launch:
        assert launch.wait(120) == 2
    assert launch.err.count("error:") == 1
    assert "learner 0 on alpha: network.torso=nature" in launch.err


@pytest.mark.slow
def test_cartpole_is_solved_on_three_hosts(hosts):
    with hosts.launch("cartpole", "actors.slots=1") as launch:
        assert launch.wait(300) == 0
        launch.assert_nothing_left()
    assert read_summary(hosts.folder / "run")["outcome"] == "solved"
