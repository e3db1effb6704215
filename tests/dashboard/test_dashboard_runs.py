"""Which runs are found, and what is said of each: running, over in some way, dead, torn, or of another version."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import pytest
from made_runs import add_the_rest, made_run, make_run
from processes import SIZES, Training, wait_until

from pronk.dashboard import answers, runs
from pronk.runs.directory import RunDirectory
from pronk.runs.reading import ENDED, is_locked, runs_below


def state_of(path: Path) -> str:
    return runs.overview(path)["state"]


@pytest.mark.parametrize("outcome", ENDED)
def test_the_summary_says_how_it_ended(tmp_path: Path, outcome: str) -> None:
    assert state_of(make_run(tmp_path / "run", 5, outcome)) == outcome


def test_a_run_without_a_last_word_was_killed(tmp_path: Path) -> None:
    assert state_of(make_run(tmp_path / "a", 5, None)) == "killed"
    assert state_of(make_run(tmp_path / "b", 0, None)) == "killed"
    resumed = make_run(tmp_path / "c", 5, "interrupted")
    with open(resumed / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"updates": 10_000}) + "\n")
    assert state_of(resumed) == "killed", "the summary is of the session before"


def test_the_dashboard_and_pronk_runs_say_the_same(tmp_path: Path) -> None:
    made_run(tmp_path / "solved", returns=[90.0, 80.0, 10.0, 30.0, 20.0], outcome="solved")
    made_run(tmp_path / "deep" / "down" / "failed", returns=[3.0, 1.0], outcome="failed", failure="no bananas")
    make_run(tmp_path / "long", 10_000, None)
    rows = {row["name"]: row for row in answers.all_runs(tmp_path, {})["runs"]}
    listed = {str(run.path.relative_to(tmp_path)): run.overview() for run in runs_below(tmp_path)}
    assert rows.keys() == listed.keys() == {"solved", "deep/down/failed", "long"}
    for name, row in rows.items():
        run = listed[name]
        shown = (row["state"], row["failure"], row["best"], row["latest"]["env_steps"])
        assert shown == (run["state"], run["failure"], run["best_return"], run["env_steps"])


def test_a_run_whose_lock_is_held_is_running(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 5, "interrupted")
    with RunDirectory(run).locked():
        assert state_of(run) == "running"
    assert state_of(run) == "interrupted"


def test_looking_never_keeps_a_training_from_starting(tmp_path: Path) -> None:
    run, over = make_run(tmp_path / "run", 5), threading.Event()

    def look() -> None:
        while not over.is_set():
            is_locked(run)

    looking = [threading.Thread(target=look) for _ in range(2)]
    for thread in looking:
        thread.start()
    try:
        for _ in range(100):
            with RunDirectory(run).locked():  # raises UserError if a reader keeps it out
                assert is_locked(run)
    finally:
        over.set()
        for thread in looking:
            thread.join()


def test_a_real_run_tells_of_its_actors_and_its_lag_and_dies_when_killed(tmp_path: Path) -> None:
    path = tmp_path / "run"
    settings = (*SIZES, "actors.count=2", "run.log_every_seconds=0.2", "run.total_steps=1e9", "run.stop_return=null")
    with Training(path, "faulty:SlowCatch", *settings) as training:
        training.wait_until(
            lambda: (path / "logs" / "actors.json").exists() and played(tmp_path), "both actors' rates", 100
        )
        now = answers.one_run(tmp_path, {"run": ["run"]})
        assert now["state"] == "running"
        assert {one["state"] for one in now["actors"]["actors"]} <= {"playing", "waiting"}
        assert {one["pid"] for one in now["actors"]["actors"]} <= {child.pid for child in training.descendants()}
        assert sum(now["lag"].values()) % 16 == 0, "columns of batches"
        training.send(signal.SIGKILL)
        training.wait()
    wait_until(lambda: state_of(path) == "killed", 10, "the lock's end")
    assert not list(path.glob("*.tmp"))


def played(folder: Path) -> bool:
    actors = answers.one_run(folder, {"run": ["run"]})["actors"].get("actors", [])
    return len(actors) == 2 and all((one["steps_per_second"] or 0) > 0 for one in actors)


def test_runs_are_found_in_folders_of_folders_and_by_themselves(tmp_path: Path) -> None:
    for name in ("b", "a", "sweep/one", "sweep/two"):
        make_run(tmp_path / "runs" / name, 1)
    (tmp_path / "runs" / "not-a-run").mkdir()
    (tmp_path / "runs" / "a" / "checkpoints").mkdir()
    assert list(runs.find(tmp_path / "runs")) == ["a", "b", "sweep/one", "sweep/two"]
    assert list(runs.find(tmp_path / "runs" / "a")) == ["a"]
    assert runs.find(tmp_path / "runs" / "not-a-run") == {}


@pytest.mark.parametrize("what", ["config.yaml", "metrics.jsonl", "summary.json", "eval.jsonl", "lag.json"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"[1, 2", b"just words", b'{"updates": {}, "columns": 3}\n'])
def test_no_content_of_any_file_breaks_the_answers(tmp_path: Path, what: str, content: bytes) -> None:
    run = make_run(tmp_path / "run", 5)
    add_the_rest(run)
    (run / what).write_bytes(content)
    for answer in (
        answers.all_runs(tmp_path, {}),
        answers.one_run(tmp_path, {"run": ["run"]}),
        answers.curve(tmp_path, {"run": ["run"]}),
        answers.curve(tmp_path, {"run": ["run"], "kind": ["evaluation"]}),
        answers.difference(tmp_path, {"run": ["run"]}),
    ):
        assert json.loads(json.dumps(answer, allow_nan=False)) == answer


def test_a_run_of_another_version_is_shown_as_far_as_it_is_understood(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 5)
    (run / "config.yaml").write_text("version: 9\nworld: {size: .inf}\nrun: [1]\nenv: 3\n")
    (run / "metrics.jsonl").write_text('{"env_steps": 5, "glow": 0.5, "parts": [1]}\n')
    (run / "summary.json").write_text('{"outcome": "transcended"}')
    shown = answers.one_run(tmp_path, {"run": ["run"]})
    assert (shown["state"], shown["env"], shown["goal"]) == ("unknown", None, None)
    assert shown["latest"] == {"env_steps": 5, "glow": 0.5}
    assert shown["config"] == {"version": "9", "world.size": "Infinity", "run": "[1]", "env": "3"}
    json.dumps(shown, allow_nan=False)


def test_the_difference_names_each_key_that_differs(tmp_path: Path) -> None:
    make_run(tmp_path / "a", 5, overrides=("run.seed=1", "loss.discount=0.9"))
    make_run(tmp_path / "b", 5, overrides=("run.seed=2", "loss.discount=0.9"))
    answer = answers.difference(tmp_path, {"run": ["a", "b", "nobody", "a"]})
    assert answer["runs"] == ["a", "b"]
    assert answer["rows"] == [{"key": "run.seed", "values": ["1", "2"]}]
    assert answer["same"] > 40


def test_a_limit_serves_every_run_that_does_the_same_work(tmp_path: Path) -> None:
    add_the_rest(make_run(tmp_path / "measured", 5))
    make_run(tmp_path / "same", 5, overrides=("run.seed=2",))
    make_run(tmp_path / "other", 5, overrides=("network.hidden=[256]",))
    found = {name: answers.one_run(tmp_path, {"run": [name]})["limit"] for name in ("measured", "same", "other")}
    assert found["measured"]["run"] == found["same"]["run"] == "measured"
    assert found["measured"]["limit"] == 265e3
    assert found["other"] is None


@pytest.mark.parametrize("text", ["", "[", "[]", '{"notes": 3}', '{"notes": [3, null]}'])
def test_notes_that_cannot_be_read_are_left_out(tmp_path, text):
    (make_run(tmp_path / "run", 5) / "notes.json").write_text(text)
    assert answers.one_run(tmp_path, {"run": ["run"]})["notes"] == []


def test_sweeps_are_groups_of_runs(tmp_path: Path) -> None:
    for seed in (1, 2):
        make_run(tmp_path / f"mine/rate=0.1,seed={seed}", 3)
    settings = {"optimiser.learning_rate": 0.1}
    members = [
        {"name": f"rate=0.1,seed={seed}", "run": f"rate=0.1,seed={seed}", "settings": settings, "state": "finished"}
        for seed in (1, 2)
    ]
    group = {"label": "learning_rate=0.1", "settings": settings, "mean": 2.0, "interval": [1.0, 3.0]}
    content = {"state": "running", "metric": "episode_return", "members": members, "groups": [group]}
    (tmp_path / "mine/sweep.json").write_text(json.dumps(content))
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn/sweep.json").write_text('{"members": [')
    answer = answers.all_runs(tmp_path, {})
    (found,) = answer["sweeps"]
    assert (found["name"], found["state"], found["done"], found["members"]) == ("mine", "killed", 2, 2)
    (shown,) = found["groups"]
    assert (shown["mean"], shown["interval"], shown["failed"]) == (2.0, [1.0, 3.0], 0)
    assert sorted(shown["runs"]) == sorted(row["name"] for row in answer["runs"])


def test_a_limit_of_a_busy_machine_gives_way_to_one_of_a_quiet_one(tmp_path: Path) -> None:
    for name, busy in (("a", True), ("b", False)):
        add_the_rest(make_run(tmp_path / name, 5))
        figures = json.loads((tmp_path / name / "bench.json").read_text())
        (tmp_path / name / "bench.json").write_text(json.dumps({**figures, "busy": busy, "load": 6.0}))
    limit = answers.one_run(tmp_path, {"run": ["a"]})["limit"]
    assert (limit["run"], limit["busy"]) == ("b", False)
    (tmp_path / "b" / "bench.json").unlink()
    limit = answers.one_run(tmp_path, {"run": ["a"]})["limit"]
    assert (limit["run"], limit["busy"], limit["load"]) == ("a", True, 6.0)


def test_runs_that_differ_by_seed_are_found_and_grouped(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        make_run(tmp_path / f"s{seed}", 5, overrides=(f"run.seed={seed}",))
    make_run(tmp_path / "other", 5, overrides=("loss.discount=0.5",))
    (make_run(tmp_path / "torn", 5) / "config.yaml").write_text("env: [")
    assert answers.one_run(tmp_path, {"run": ["s2"]})["seeds"] == ["s1", "s2", "s3"]
    assert answers.one_run(tmp_path, {"run": ["torn"]})["seeds"] == ["torn"]
    groups = answers.difference(tmp_path, {"run": ["s1", "s3", "other", "torn"]})["groups"]
    assert [(group["label"], group["runs"]) for group in groups] == [
        ("discount=0.99", ["s1", "s3"]),
        ("discount=0.5", ["other"]),
        ("torn", ["torn"]),
    ]
    (shown,) = answers.all_runs(tmp_path, {})["seeds"]
    assert (shown["runs"], shown["seeds"], shown["failed"]) == (["s1", "s2", "s3"], 3, 0)
    assert shown["interval"][0] <= shown["mean"] <= shown["interval"][1]
