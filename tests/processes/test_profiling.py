"""A profile says how long each part of a thread took, and leaves a trace that Perfetto reads."""

from __future__ import annotations

import contextlib
import errno
import gzip
import importlib
import json
import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from pronk.processes import profiling
from pronk.processes.parts_of_time import ACTOR, LEARNER, Parts, TimeSpent, table_of
from pronk.processes.profiling import Clock, Method, Profile, found, muted_errors, replaced
from pronk.sinks.profile import METHODS

NUMBERS = torch.ones(10)
PARTS = Parts(
    {"slow": "with the fast one inside", "fast": "", "entering": ""}, work=("slow", "fast"), waiting="entering"
)


class Worker:
    def slow(self) -> None:
        wait(0.03)
        self.fast()

    def fast(self) -> None:
        wait(0.01)

    @contextlib.contextmanager
    def block(self):
        wait(0.005)
        yield 7
        wait(0.005)


def methods_of(worker: Any) -> list[Method]:
    return [
        Method(worker, "slow", "slow"),
        Method(worker, "fast", "fast"),
        Method(worker, "block", "entering", until_entered=True),
    ]


def wait(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        NUMBERS.add(1)
        time.sleep(0.001)  # every operation is an event of the trace


def shares_in(text: str) -> dict[str, float]:
    """Part -> its share in percent."""
    rows = [line.split(maxsplit=4) for line in text.splitlines()[1:-1]]
    return {row[-1].partition(":")[0]: float(row[0].rstrip("%")) for row in rows}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "WARM_UP_SECONDS", 0.0)
    monkeypatch.setattr(profiling, "TRACE_SECONDS", 0.05)


@pytest.mark.parametrize("of_class", [True, False], ids=["class", "object"])
def test_parts_get_their_shares_and_a_trace_follows(tmp_path: Path, of_class: bool) -> None:
    worker = Worker()
    profile = Profile(tmp_path / "profile", "me", PARTS, methods_of(Worker if of_class else worker), seconds=0.5)
    before = dict(vars(Worker))
    deadline = time.monotonic() + 60
    while not (tmp_path / "profile/me.json.gz").exists() and time.monotonic() < deadline:
        worker.slow()
        profile.tick()
    assert dict(vars(Worker)) == before
    assert not vars(worker)
    shares = shares_in((tmp_path / "profile/me.txt").read_text())
    assert shares["slow"] > shares["fast"] > 5.0
    with gzip.open(tmp_path / "profile/me.json.gz") as file:
        events = json.load(file)["traceEvents"]
    traced = [event["ts"] for event in events if event.get("name") == "aten::add"]
    assert max(traced) - min(traced) > 30_000  # microseconds
    assert {"slow", "fast"} <= {event.get("name") for event in events}


def test_a_run_that_ends_early_leaves_what_there_is(tmp_path: Path) -> None:
    worker = Worker()
    profile = Profile(tmp_path / "profile", "me", PARTS, methods_of(worker), seconds=1000.0)
    for _ in range(5):
        profile.tick()
        worker.slow()
    profile.close()
    profile.tick()
    assert next(iter(shares_in((tmp_path / "profile/me.txt").read_text()))) == "slow"
    assert [path.name for path in (tmp_path / "profile").iterdir()] == ["me.txt"]
    assert not vars(worker)


def test_time_belongs_to_the_innermost_part_of_this_thread() -> None:
    worker, clock = Worker(), Clock()
    with replaced(methods_of(worker), clock):
        worker.slow()
        with worker.block() as value:
            assert value == 7
            worker.fast()
        thread = threading.Thread(target=worker.slow)
        thread.start()
        thread.join()
    seconds, spent = clock.end()
    assert {part: one.calls for part, one in spent.items()} == {"slow": 1, "fast": 2, "entering": 1}
    assert sum(one.seconds for one in spent.values()) <= seconds
    assert spent["slow"].seconds >= 0.03
    assert spent["fast"].seconds >= 0.02
    assert 0.005 <= spent["entering"].seconds == spent["entering"].longest


def test_what_raises_still_ends_its_part() -> None:
    clock = Clock()

    class Broken:
        def step(self) -> None:
            raise ValueError

    with replaced([Method(Broken, "step", "step")], clock):
        with pytest.raises(ValueError):
            Broken().step()
        clock.enter("after")
        clock.leave()
    assert {part: one.calls for part, one in clock.end()[1].items()} == {"step": 1, "after": 1}


def test_the_table_says_what_is_not_work() -> None:
    spent = {"forward": TimeSpent(10, 2.0, 0.3), "backward": TimeSpent(10, 3.0, 0.4), "optimiser": TimeSpent(10, 1.0)}
    spent |= {"waiting": TimeSpent(5, 2.0), "publish": TimeSpent(100, 1.0, 0.025)}
    text = table_of(LEARNER, 10.0, spent)
    assert shares_in(text) == {
        **{"forward": 20.0, "backward": 30.0, "optimiser": 10.0, "publish": 10.0, "waiting": 20.0},
        "other": 10.0,
    }
    publish = next(line for line in text.splitlines() if "publish" in line)
    assert publish.split()[:4] == ["10.0%", "100", "10.000", "25.000"]  # share, calls, mean and longest in ms
    assert text.splitlines()[-1] == "outside forward, backward and optimiser: 40.0% of 10.0 s, 25.0% without waiting"


def test_every_method_of_the_learner_exists_and_has_a_row() -> None:
    for method in METHODS:
        module, _, name = method.owner.partition(":")
        importlib.import_module(module)
        owner = found(method.owner)
        assert owner is not None, name
        assert callable(getattr(owner, method.name))
    assert {method.part for method in METHODS} == set(LEARNER.meanings)
    assert {*LEARNER.work, LEARNER.waiting} <= set(LEARNER.meanings)
    assert {*ACTOR.work, ACTOR.waiting} <= set(ACTOR.meanings)


def test_a_full_disk_costs_the_profile_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    class Trace:
        start = stop = staticmethod(lambda: None)
        export_chrome_trace = staticmethod(full)

    monkeypatch.setattr(Path, "write_text", full)
    monkeypatch.setattr("torch.profiler.profile", Trace)
    profile = Profile(tmp_path, "me", PARTS, methods_of(Worker()), seconds=0.0)
    for _ in range(5):
        profile.tick()
    profile.close()
    assert re.findall(r"cannot write \S+/(me\S+): .*No space left", capsys.readouterr().err) == ["me.txt", "me.json.gz"]
    assert list(tmp_path.iterdir()) == []


def test_native_output_is_silenced_where_there_is_a_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    with muted_errors():
        os.write(2, b"unheard")
    os.write(2, b"heard")
    kept = os.dup(2)
    os.close(2)
    try:
        with muted_errors():
            pass
    finally:
        os.dup2(kept, 2)
        os.close(kept)
    assert capfd.readouterr().err == "heard"
