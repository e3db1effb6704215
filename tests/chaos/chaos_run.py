"""A run that faults are injected into, and what has to hold after each of them."""

from __future__ import annotations

import itertools
import json
import os
import re
import time
from pathlib import Path
from typing import Any, NamedTuple

from once_each import REPORT
from processes import Training, assert_monotone, read_summary

from pronk.runs.directory import RunDirectory

LIMIT = 240.0  # seconds to recover: generous, because the machine may be busy; longer is a hang
UPDATES = 5  # that a run must make after a fault
STEPS, ACTORS, ENVS = 10, 2, 4  # of an unroll; of a run; of an actor
COLUMNS = ACTORS * ENVS  # of a batch
ACTOR_LOGS = "actor-*.log"
TIMEOUT = float(os.environ.get("PRONK_CHAOS_TIMEOUT", "15"))  # actors.timeout_seconds: of standing still; see run.py
RUN = (
    "stamped:Stamped",
    "loss=once_each:OnceEach",
    f"actors.count={ACTORS}",
    f"actors.envs={ENVS}",
    f"actors.unroll_length={STEPS}",
    "actors.slots=2",
    f"actors.timeout_seconds={TIMEOUT}",
    f"learner.batch_size={COLUMNS}",
    "learner.passes=1",
    "learner.threads=1",
    "network.normalise=false",  # else the small numbers that name an environment and its steps become large ones
    "optimiser.learning_rate=3e-3",
    "loss.entropy_cost=0.01",
    "checkpoint.every_seconds=1",
    "run.log_every_seconds=0.2",
    "run.stop_return=null",
    "run.total_steps=1e9",
)
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}
TRANSPORTS = {
    "shared memory": (),
    "gRPC": ("transport=grpc",),
    "two learners": ("learners=2",),
}


class Resources(NamedTuple):
    """What a run uses."""

    processes: int
    descriptors: int  # of the learner
    resident: int  # bytes, of the learner


class ChaosRun(Training):
    """A training without end, until it is told to."""

    def __init__(self, path: Path, *arguments: str, learners: int = 1, **more: Any) -> None:
        self.report, self.learners = path.with_name(path.name + ".lost"), learners
        super().__init__(path, *arguments, **{REPORT: str(self.report)}, **ENVIRONMENT, **more)

    def wait_until_it_learns(self) -> None:
        """Until all its processes are there and it has made some updates."""
        self.wait_for_more(2 * UPDATES)
        self.wait_until(lambda: len(self.actors()) == ACTORS, "its actors", LIMIT)

    def wait_for_more(self, updates: int = UPDATES) -> None:
        """Until it has made so many further updates."""
        goal = self.updates + updates
        self.wait_until(lambda: self.updates >= goal, f"{updates} more updates", LIMIT)

    @property
    def updates(self) -> int:
        """So far."""
        lines = self.metrics()
        return lines[-1]["updates"] if lines else 0

    def pids(self, pattern: str) -> list[int]:
        """Of the living processes whose logs match, by the last start that each log has."""
        found = []
        for log in sorted((self.path / "logs").rglob(pattern)):
            found += re.findall(r"starts \(life \d+, pid (\d+)\)", log.read_text(errors="replace"))[-1:]
        if pattern == ACTOR_LOGS:  # an actor that started on a full disk is not in its log
            found += [one["pid"] for one in self.actor_states().values() if one["pid"]]
        return sorted({int(pid) for pid in found} & {process.pid for process in self.descendants()})

    def actors(self) -> list[int]:
        """Process ids of all actors, of every learner."""
        return self.pids(ACTOR_LOGS)

    def actor_states(self) -> dict[tuple[Path, int], dict[str, Any]]:
        """What each learner writes about each of its actors, once a second."""
        files = (self.path / "logs").rglob("actors.json")
        return {(file, one["actor"]): one for file in sorted(files) for one in json.loads(file.read_text())["actors"]}

    def wait_until_all_play(self) -> None:
        """Until every actor has delivered another unroll: failures before one are failures in a row."""
        before = {name: one["unrolls"] for name, one in self.actor_states().items()}
        self.wait_until(
            # Not `>`: a learner that was restarted counts from zero.
            lambda: all(one["unrolls"] != before.get(name) for name, one in self.actor_states().items()),
            "an unroll of every actor",
            LIMIT,
        )

    def resources(self) -> Resources:
        """Of the run as it is now."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found, f"the run has ended: {self.err}"
        resident = int(found[1]) * 1024
        return Resources(len(self.descendants()), len(os.listdir(f"/proc/{self.pid}/fd")), resident)

    def check_recovery(self, before: Resources) -> float:
        """Wait until it trains as before a fault that has just been undone. Returns the seconds this took."""
        began = time.monotonic()
        self.wait_for_more()
        self.wait_until(lambda: self.resources().processes == before.processes, "as many processes as before", LIMIT)
        self.wait_until(lambda: self.resources().descriptors <= before.descriptors + 2, "its descriptors", LIMIT)
        seconds = time.monotonic() - began
        self.wait_until_all_play()
        assert self.resources().resident < 1.3 * before.resident + (64 << 20), "memory as before"
        check_counters(self.metrics(), self.learners)
        return seconds

    def lost(self) -> int:
        """Columns that were played and never learnt from, while their environment played on."""
        return lost_in(self.report)


def lost_in(report: Path) -> int:
    """Columns that the loss of a run has missed."""
    lines = report.read_text().splitlines() if report.exists() else []
    return sum(json.loads(line)["lost"] for line in lines)


def check_counters(lines: list[dict[str, Any]], learners: int = 1) -> None:
    """Counters never fall, and every update has counted the steps of its batch, once."""
    assert_monotone(lines)
    part = COLUMNS * STEPS // learners
    for before, after in itertools.pairwise(lines):
        steps, updates = (after[name] - before[name] for name in ("env_steps", "updates"))
        assert steps % part == 0, f"{steps} steps in {updates} updates"
        assert updates * part <= steps <= updates * part * learners, f"{steps} steps in {updates} updates"


def check_end(run: Path, learners: int = 1, outcome: str = "interrupted") -> None:
    """The summary, the last line of metrics and the newest checkpoint agree."""
    summary = read_summary(run)
    assert summary["outcome"] == outcome, summary
    state, problems = RunDirectory.open(run).checkpoints.restore()
    assert not problems, problems
    assert state["learner"]["version"] == state["metrics"]["updates"] == summary["updates"]
    assert state["metrics"]["env_steps"] == summary["env_steps"]
    assert "Traceback" not in (run.with_name(run.name + ".err")).read_text()
    check_counters([{**summary, "env_steps": 0, "updates": 0, "episodes": 0, "wall_seconds": 0}, summary], learners)
