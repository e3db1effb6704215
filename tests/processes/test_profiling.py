"""A profile names the part in which a thread spends its time, and leaves a trace that Perfetto reads."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest
import torch

from pronk.processes import profiling
from pronk.processes.profiling import Profile

NUMBERS = torch.ones(10)
HERE = {(__name__, "slow"): "the slow part", (__name__, "fast"): "the fast part"}


def slow() -> None:
    wait(0.03)


def fast() -> None:
    wait(0.01)


def wait(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        NUMBERS.add(1)
        time.sleep(0.001)  # every operation is an event of the trace


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "WARM_UP_SECONDS", 0.0)
    monkeypatch.setattr(profiling, "TRACE_SECONDS", 0.05)


def shares_in(path: Path) -> dict[str, float]:
    rows = (line.strip().partition("%  ") for line in path.read_text().splitlines())
    return {part: float(share) for share, _, part in rows}


def test_parts_get_their_shares_and_a_trace_follows(tmp_path: Path) -> None:
    profile = Profile(tmp_path / "profile", "me", HERE, seconds=1.0)
    deadline = time.monotonic() + 60
    while not (tmp_path / "profile/me.json.gz").exists() and time.monotonic() < deadline:
        slow()
        fast()
        profile.tick()
    shares = shares_in(tmp_path / "profile/me.txt")
    assert shares["the slow part"] > shares["the fast part"] > 5.0
    with gzip.open(tmp_path / "profile/me.json.gz") as file:
        traced = [event["ts"] for event in json.load(file)["traceEvents"] if event.get("name") == "aten::add"]
    assert max(traced) - min(traced) > 30_000  # microseconds


def test_a_run_that_ends_early_leaves_what_there_is(tmp_path: Path) -> None:
    profile = Profile(tmp_path / "profile", "me", HERE, seconds=1000.0)
    for _ in range(5):
        profile.tick()
        slow()
    profile.close()
    profile.tick()
    assert next(iter(shares_in(tmp_path / "profile/me.txt"))) == "the slow part"
    assert [path.name for path in (tmp_path / "profile").iterdir()] == ["me.txt"]
