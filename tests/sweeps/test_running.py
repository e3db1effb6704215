"""Several members at a time, with processes that end as they are told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pronk.cluster.base import Placement
from pronk.config import load_config
from pronk.processes.messages import Exited, Failed, Message, RunCommand, RunnerReady, Started
from pronk.processes.restarts import RestartPolicy
from pronk.sweeps import running
from pronk.sweeps.capacity import Capacity
from pronk.sweeps.expand import Member
from pronk.sweeps.running import Record, SweepRun

CONFIG = load_config("catch")


class Process:
    """Ends as soon as it is started: with the next of the codes for its member, or code 0."""

    def __init__(self, codes: dict[str, list[int]]) -> None:
        self._codes = codes
        self._messages: list[Message] = [RunnerReady(1, 1)]

    def run(self, command: RunCommand) -> None:
        left = self._codes.get(Path(str(command.run)).name, [])
        code = left.pop(0) if left else 0
        failed = [Failed("no licence found")] if code == 1 else []
        self._messages = [Started(True), *failed, Exited(code)]

    def receive(self) -> list[Message]:
        messages, self._messages = self._messages, []
        return messages

    def stop(self) -> None: ...

    def close(self) -> None: ...


class Trials:
    """Proposes a fixed number of trials with two members each, and keeps what it is told."""

    def __init__(self, count: int) -> None:
        self._left = list(range(count))
        self.told: dict[int, tuple[float | None, bool]] = {}

    def propose(self) -> list[Member]:
        if not self._left:
            return []
        number = self._left.pop(0)
        return [Member(f"trial-{number},{seed}", {}, seed, CONFIG, number) for seed in (1, 2)]

    def falls_behind(self, trial: int, fraction: float, value: float) -> bool:
        return False

    def conclude(self, trial: int, value: float | None, pruned: bool) -> None:
        assert trial not in self.told
        self.told[trial] = (value, pruned)


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., SweepRun]:
    monkeypatch.setattr(running, "POLICY", RestartPolicy(max_failures=1, max_kills=3, first_pause=0.0))
    monkeypatch.setattr(running, "POLL_SECONDS", 0.0)

    def make(names: list[str], codes: dict[str, list[int]], proposals: Trials | None = None) -> SweepRun:
        records = [Record(Member(name, {}, 1, CONFIG), tmp_path / name) for name in names]
        most: list[int] = []

        def changed(record: Record | None) -> None:
            most.append(sum(one.state == "running" for one in run.records))
            assert max(most) <= 2

        capacity = Capacity(Placement("here", lambda: Process(codes)), 2, None)
        run = SweepRun(
            tmp_path,
            records,
            capacity,
            "episode_return",
            marker=tmp_path / "marker",
            proposals=proposals,
            show=lambda records: None,
            changed=changed,
            say=lambda message: None,
        )
        return run

    return make


def test_a_killed_member_is_restarted_and_a_failed_one_is_not(sweep: Callable[..., SweepRun]) -> None:
    codes = {"a": [-9, -9], "b": [1, 0], "c": [-9, -9, -9], "d": [130]}
    run = sweep(["a", "b", "c", "d", "e"], codes)
    assert run.run()
    assert {record.member.name: record.state for record in run.records} == {
        "a": "finished",
        "b": "failed",
        "c": "failed",
        "d": "interrupted",
        "e": "finished",
    }
    causes = [record.cause or "" for record in run.records]
    assert causes[1] == "no licence found"
    assert "SIGKILL" in causes[2]
    assert codes["b"] == [0]


def test_a_search_goes_on_when_all_members_have_ended_at_once(sweep: Callable[..., SweepRun]) -> None:
    trials = Trials(3)
    run = sweep([], {"trial-1,1": [1], "trial-1,2": [1]}, trials)
    assert run.run()
    assert len(run.records) == 6
    assert trials.told == dict.fromkeys(range(3), (None, False))
