"""The comparison with other trainers: its clock, its runner and its page. No peer has to be installed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.peers import run, table
from benchmarks.peers.base import DRIVERS, PEERS, REQUIREMENTS, VENVS, WORKS
from tests.support.processes import wait_until


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The drivers' shared module, imported as they do."""
    monkeypatch.syspath_prepend(str(DRIVERS))
    import measuring

    yield measuring
    sys.modules.pop("measuring")


def row(work: str, peer: str, number: int, **found: Any) -> dict[str, Any]:
    facts = {"peak_mib": 100 * number, "machine": "a machine", "commit": "abc", "date": "2026-01-01T00:00:00"}
    settings = {"work": work, "peer": peer, "round": number, "seconds": 10.0}
    return settings | {"job_envs": 64 if work == "cartpole" else None} | facts | found


def speed(work: str, peer: str, *rates: float) -> list[dict[str, Any]]:
    versions = {"versions": {"torch": "2.13.0"}, "startup_seconds": 3.0}
    return [row(work, peer, i, steps_per_second=rate, **versions) for i, rate in enumerate(rates, 1)]


def solve(peer: str, *runs: tuple[float, float]) -> list[dict[str, Any]]:
    return [
        row("solve", peer, i, solve_seconds=seconds, evaluation={"sampled": mean, "deterministic": mean - 1})
        for i, (seconds, mean) in enumerate(runs, 1)
    ]


def test_every_peer_has_a_driver_and_requirements() -> None:
    for peer in PEERS.values():
        assert (DRIVERS / peer.driver).is_file()
        assert set(peer.works) <= set(WORKS)
    for name in VENVS:
        assert (REQUIREMENTS / f"{name}.txt").is_file()


def test_ratios_are_taken_within_a_round() -> None:
    rows = speed("cartpole", "pronk", 100, 400, 90) + speed("cartpole", "sb3-a2c", 10, 20, 30)
    (found,) = table.compare(rows + speed("cartpole", "cleanrl", 5, 40, 10))
    assert found.ratios == {1: 10.0, 2: 10.0, 3: 3.0}
    assert "**10.0x** the best peer (3.0x to 10.0x in 3 rounds)" in table.summary([found])


def test_a_policy_that_fails_its_evaluation_is_not_solved() -> None:
    rows = solve("pronk", (4.0, 500.0), (4.0, 500.0)) + solve("sb3-ppo", (2.0, 474.0), (20.0, 475.0))
    (found,) = table.compare(rows)
    assert found.ratios == {2: 5.0}
    assert "| SB3 PPO | 20.0 | 20.0 (1 of 2 not solved) |" in table.table(found)


def test_a_later_attempt_replaces_a_failure(tmp_path: Path) -> None:
    failed = row("pong", "torchbeast", 1, failure="exit code 1 | no wheel")
    page = tmp_path / "peers.md"
    page.write_text(f"how it was measured\n\n{table.MARKER}\nold\n")
    table.write([failed], page)
    assert page.read_text() == (
        f"how it was measured\n\n{table.MARKER}\n{table.NOTHING}\n## What failed\n\n"
        f"- TorchBeast, {WORKS['pong']}: `exit code 1 | no wheel`\n"
    )
    table.write([failed, *speed("pong", "torchbeast", 530), *speed("pong", "pronk", 1060)], page)
    text = page.read_text()
    assert "no wheel" not in text
    assert "old" not in text
    assert "**2.0x** the best peer" in text
    assert page.with_suffix(".png").stat().st_size > 1000


def test_peers_take_turns_and_what_is_measured_is_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys, "argv", ["run", "venvs", "--works", "pong", "--peers", "pronk", "torchbeast", "--rounds", "2"]
    )
    planned = list(run.jobs(run.parse()))
    assert [(job.peer, job.round) for job in planned] == [
        *(("pronk", 1), ("torchbeast", 1)),
        *(("pronk", 2), ("torchbeast", 2)),
    ]
    assert run.Job.of(speed("pong", "pronk", 1060)[0]) == planned[0]


def task(measuring: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    monkeypatch.setattr(sys, "argv", ["driver", *arguments, "--folder", "unused", "--began", "100"])
    return measuring.parse()


def test_the_clock_leaves_the_warm_up_out(measuring: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    meter = measuring.Meter(task(measuring, monkeypatch, "cartpole", "--seconds", "10", "--warmup", "3"))
    ends = [
        meter.updated(steps, at=at) for at, steps in [(105, 64), (107, 128), (109, 1000), (118, 9000), (120, 12_000)]
    ]
    assert ends == [False, False, False, False, True]
    assert meter.result() == {
        "startup_seconds": 5.0,
        "steps": 12_000,
        "measured_steps": 11_000,
        "measured_seconds": 11.0,
        "steps_per_second": 1000.0,
    }


def test_the_clock_stops_at_475_of_100_episodes(measuring: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    meter = measuring.Meter(task(measuring, monkeypatch, "solve", "--limit", "60"))
    assert not meter.updated(1000, [500.0] * 99, at=110)
    assert meter.updated(2000, [500.0], at=112)
    assert meter.result() == {"startup_seconds": 10.0, "steps": 2000, "reached": True, "solve_seconds": 12.0}


def test_the_clock_gives_up_after_the_limit(measuring: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    meter = measuring.Meter(task(measuring, monkeypatch, "solve", "--limit", "60"))
    assert not meter.updated(1000, [20.0] * 100, at=110)
    assert meter.updated(2000, at=160)
    assert not meter.result()["reached"]


def test_a_run_is_measured_and_what_it_leaves_behind_is_ended(tmp_path: Path) -> None:
    sleeper = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
    command = [sys.executable, "-c", f"import subprocess, sys, time; print({sleeper}.pid); time.sleep(3)"]
    with (tmp_path / "errors").open("w+") as errors:
        output, memory = run.run(command, str(tmp_path), 60.0, errors)
    assert memory > 1
    wait_until(lambda: not is_running(int(output)), 60.0, "the end of what it started")


def is_running(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
