"""Evaluation beside training: what it writes, what it chooses, and that nothing of it can hurt the training."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import Ended, Training, command_line, read_summary, refuse, trainings_at_once
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pronk.config import load_config, resolve
from pronk.evaluation.evaluator import Evaluator
from pronk.processes.interrupts import Interrupts
from pronk.processes.priority import NICENESS
from pronk.runs.checkpoint import load_checkpoint
from pronk.runs.directory import RunDirectory
from pronk.runs.reading import return_text
from pronk.seeding import BESIDE_TRAINING, actor_seeds, evaluation_seeds
from pronk.sinks.jsonl import JsonLines

CONTRACT = {
    *("wall_seconds", "env_steps", "frames", "updates", "checkpoint", "episodes", "mean", "std", "min", "max"),
    *("mean_length", "deterministic", "seconds", "best"),
}
OFTEN = ("run.log_every_seconds=0.1", "evaluation.every_seconds=0.3", "evaluation.episodes=5")
ENDLESS = ("run.stop_return=null", "run.total_steps=1e9")
HERE = "transport=local"
PATIENCE = 300.0  # seconds: on a busy machine a process of low priority is slow to start


def evaluations(run: Path) -> list[dict[str, Any]]:
    """The whole lines of eval.jsonl."""
    path = run / "eval.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line, parse_constant=refuse) for line in lines if line.endswith("\n")]


def lives(run: Path) -> list[int]:
    """The process of every life of the evaluator."""
    log = run / "logs" / "evaluator.log"
    return [
        int(pid) for pid in re.findall(r"starts \(life \d+, pid (\d+)\)\n", log.read_text() if log.exists() else "")
    ]


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Training]]:
    folder = tmp_path_factory.mktemp("evaluator")
    commands = {
        "killed": ("faulty:SlowCatch", HERE, *OFTEN, *ENDLESS, "--evaluate"),
        "raises": ("faulty:RaisesWhenEvaluated", HERE, *OFTEN, "run.total_steps=3200", "actors.max_failures=2"),
        "hangs": ("faulty:HangsWhenEvaluated", HERE, *OFTEN, "actors.timeout_seconds=10", "actors.max_failures=1"),
    }
    commands["raises"] += ("-t", "train_with_evaluate")
    commands["hangs"] += ("run.total_steps=3200", "--evaluate")
    few = ("evaluation.episodes=3", "evaluation.every_seconds=1e4")
    commands["lies"] = ("faulty:WorthlessWhenEvaluated", HERE, *few, "run.stop_return=9", "run.total_steps=40_000")
    commands["lies"] += ("--evaluate", "--quiet")
    commands["lies of two"] = (*commands["lies"], "learners=2")
    with trainings_at_once(folder, commands) as started:
        yield started


@pytest.mark.timeout(4 * PATIENCE)
def test_a_killed_evaluator_comes_back_and_ctrl_c_and_resume_leave_everything_whole(
    trainings: dict[str, Training],
) -> None:
    training = trainings["killed"]
    run = training.path
    training.wait_until(lambda: evaluations(run), "the first evaluation", PATIENCE)
    (victim,) = lives(run)
    wanted = min(19, os.getpriority(os.PRIO_PROCESS, training.pid) + NICENESS)
    assert os.getpriority(os.PRIO_PROCESS, victim) == wanted
    assert victim in {process.pid for process in training.descendants()}

    os.kill(victim, signal.SIGKILL)
    before = len(evaluations(run))
    training.wait_until(lambda: len(lives(run)) == 2, "its next life", PATIENCE)
    training.wait_until(lambda: len(evaluations(run)) > before + 1, "its next evaluations", PATIENCE)
    assert "the evaluator failed (killed by SIGKILL); restarting it" in training.err

    training.send(signal.SIGINT, group=True)
    assert training.wait(PATIENCE) == 130
    training.assert_nothing_left()
    assert "Traceback" not in training.err
    lines = evaluations(run)
    assert [line["updates"] for line in lines] == sorted({line["updates"] for line in lines})
    assert all(line.keys() == CONTRACT and line["episodes"] == 5 for line in lines)
    assert all(int(Path(line["checkpoint"]).stem) == line["env_steps"] for line in lines)
    chosen = [line for line in lines if line["best"]][-1]
    assert chosen["mean"] == max(line["mean"] for line in lines)
    assert load_checkpoint(run / "checkpoints" / "best.pt")["metrics"]["updates"] == chosen["updates"]
    assert not (run / "checkpoints" / "evaluating.pt").exists()
    assert not list(run.rglob("*.tmp"))

    goal = read_summary(run)["env_steps"] + 640
    ended = command_line("train", run, "--resume", f"run.total_steps={goal}", HERE, "--quiet")
    assert (ended.code, ended.err) == (0, "")
    after = evaluations(run)
    assert after[: len(lines)] == lines
    assert after[-1] == read_summary(run)["evaluation"]
    assert after[-1]["updates"] == read_summary(run)["updates"] > lines[-1]["updates"]


@pytest.mark.timeout(4 * PATIENCE)
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("raises", "the evaluator failed 2 times in a row (RuntimeError: not in front of an audience); training "),
        ("hangs", "the evaluator failed (no step for 10 s (actors.timeout_seconds)); training "),
    ],
)
def test_an_environment_that_fails_the_evaluator_does_not_fail_the_training(
    name: str, told: str, trainings: dict[str, Training]
) -> None:
    training = trainings[name]
    assert training.wait(PATIENCE) == 0
    training.assert_nothing_left()
    assert training.err.count(told) == 1, training.err
    assert "Traceback" not in training.err
    log = (training.path / "logs" / "evaluator.log").read_text()
    assert re.search(r'faulty.py", line \d+,? in step', log), "the log says where"
    assert evaluations(training.path) == []
    summary = read_summary(training.path)
    assert (summary["outcome"], summary["evaluation"]) == ("finished", None)
    assert (training.path / "checkpoints" / "best.pt").exists(), "chosen by the training's own returns"


@pytest.mark.timeout(4 * PATIENCE)
@pytest.mark.parametrize("name", ["lies", "lies of two"])
def test_a_goal_that_only_the_actors_report_is_not_reached(name: str, trainings: dict[str, Training]) -> None:
    training = trainings[name]
    assert training.wait(PATIENCE) == 0, training.err
    assert read_summary(training.path)["outcome"] == "finished"
    said = "return 9 not confirmed: 0, the mean of the evaluator's 3 episodes, but 10 as actors report it"
    assert 1 <= training.err.count(said) <= 10, "ever more seldom"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    """A short run in one process: its last checkpoint is evaluated, if no other."""
    run = tmp_path_factory.mktemp("finished") / "run"
    overrides = [HERE, "run.total_steps=3200", "evaluation.episodes=7", "evaluation.deterministic=true"]
    return run, command_line("train", "catch", *overrides, "--run-dir", run, "--evaluate")


def test_the_last_checkpoint_is_evaluated_and_shown(finished: tuple[Path, Ended]) -> None:
    run, ended = finished
    assert ended.code == 0, ended.err
    line = evaluations(run)[-1]
    assert line.keys() == CONTRACT
    assert (line["env_steps"], line["frames"], line["updates"], line["episodes"]) == (3200, 3200, 10, 7)
    assert line["checkpoint"] == "000000003200.pt"
    assert line["deterministic"] is True
    assert line["mean_length"] == 9
    assert line["min"] <= line["mean"] <= line["max"]
    assert read_summary(run)["evaluation"] == line
    assert "evaluating the last checkpoint: 7 episodes, 300 s at most" in ended.err
    mean, std = (return_text(line[name], line["std"]) for name in ("mean", "std"))
    told = f"{mean} +- {std} over 7 episodes, at 3,200 steps"
    assert f"catch: evaluated: {told}" in ended.out
    assert f"Evaluated: {told}" in ended.out


def test_tensorboard_has_the_evaluations(finished: tuple[Path, Ended]) -> None:
    run, _ = finished
    events = EventAccumulator(str(run / "tensorboard")).Reload()
    (point,) = events.Scalars("eval/mean")
    assert (point.step, point.value) == (3200, pytest.approx(evaluations(run)[-1]["mean"]))
    assert {"eval/std", "eval/min", "eval/max", "eval/mean_length"} <= set(events.Tags()["scalars"])


def test_a_finished_run_is_not_evaluated_again(finished: tuple[Path, Ended]) -> None:
    run, _ = finished
    before = evaluations(run)
    assert command_line("train", run, "--resume", "--quiet") == (0, "", "")
    assert evaluations(run) == before


def test_task_evaluate_plays_the_newest_run_of_a_preset(
    finished: tuple[Path, Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    nobody = command_line("train", "catch", "-t", "evaluate")
    assert (nobody.code, nobody.err.count("\n")) == (2, 1)
    assert "no run of catch under runs/" in nobody.err
    assert "name a run directory" in nobody.err
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "catch-20250101-120000").symlink_to(finished[0])
    for arguments in (["catch"], ["catch", "--run-dir", finished[0]]):
        ended = command_line("train", *arguments, "-t", "evaluate", "evaluation.episodes=3")
        assert ended.code == 0, ended.err
        assert "000000003200.pt" in ended.out
        assert "over 3 episodes" in ended.out
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["catch-20250101-120000"], "nothing was trained"
    refused = command_line("train", "catch", "-t", "evaluate", "--seed", "3")
    assert refused.code == 2
    assert "run.seed=3" in refused.err
    wrong = command_line("train", "catch", "-t", "evaluat")
    assert wrong.code == 2
    assert "train_with_evaluate" in wrong.err


# ---- the learner's side alone


def result(checkpoint: Path, mean: float, **changes: Any) -> dict[str, Any]:
    """What the process answers."""
    steps = int(checkpoint.stem)
    whole = dict.fromkeys(CONTRACT - {"best"}, 1.0) | {"env_steps": steps, "updates": steps, "episodes": 5}
    return whole | {"mean": mean, "checkpoint": checkpoint.name} | changes


class Bench:
    """An evaluator without a process, a run directory, and what was said."""

    def __init__(self, path: Path, *overrides: str, evaluations: Path | None = None) -> None:
        self.config = load_config("catch", ["evaluation=true", *overrides])
        self.run = RunDirectory(path) if path.exists() else RunDirectory.create(self.config, path, "here")
        self.said: list[str] = []
        sinks = [JsonLines(self.run.metrics, evaluations or self.run.evaluations)]
        self.evaluator = Evaluator(resolve(self.config), self.run, sinks, self.said.append)

    def save(self, steps: int) -> Path:
        state = {"metrics": {"env_steps": steps}, "learner": {"weights": torch.ones(3) * steps}, "config": {}}
        return self.run.checkpoints.save(state, keep=1)

    def evaluate(self, steps: int, mean: float) -> None:
        checkpoint = self.save(steps)
        assert self.evaluator._evaluate(checkpoint)
        self.save(steps + 1)  # pushes it out
        self.evaluator._record(result(checkpoint, mean))

    def best(self) -> int:
        return load_checkpoint(self.run.checkpoints.best)["metrics"]["env_steps"]


def test_the_best_is_the_newest_of_the_highest_mean_and_a_resumed_run_knows_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "run")
    assert not bench.evaluator.chooses_best
    best = []
    for steps, mean in [(10, 3.0), (20, 2.0), (30, 3.0), (40, float("nan")), (50, 2.9)]:
        bench.evaluate(steps, mean)
        best.append(bench.best())
    assert best == [10, 10, 30, 30, 30]
    assert [line["mean"] for line in evaluations(tmp_path / "run")] == [3.0, 2.0, 3.0, None, 2.9]
    assert {path.name for path in bench.run.checkpoints.folder.iterdir()} == {"best.pt", "000000000051.pt"}

    bench.run.prepare_resume(bench.config, updates=45)
    resumed = Bench(tmp_path / "run")
    assert resumed.evaluator.chooses_best
    assert len(evaluations(tmp_path / "run")) == 4
    resumed.evaluate(60, 2.95)
    assert resumed.best() == 30
    resumed.evaluate(70, 3.1)
    assert resumed.best() == 70


def test_a_full_disk_is_said_and_nothing_else_happens(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "run", evaluations=Path("/dev/full"))
    bench.evaluate(10, 3.0)
    assert bench.best() == 10
    assert bench.said == ["cannot write an evaluation: [Errno 28] No space left on device"]
    assert bench.evaluator.last is not None


def test_a_process_that_cannot_be_started_is_given_up(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "run", "actors.max_failures=2")
    (bench.run.logs / "evaluator.log").mkdir()
    with bench.evaluator as evaluator:
        evaluator.finish(bench.save(10), Interrupts(), aloud=False)
    assert len(bench.said) == 2
    assert "restarting it" in bench.said[0]
    assert "2 times in a row ([Errno 21] Is a directory" in bench.said[1]
    assert not evaluator.wants_checkpoint()


def test_the_end_waits_so_long_and_no_longer(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "run", "evaluation.final_seconds=0")
    with bench.evaluator as evaluator:
        evaluator.finish(bench.save(10), Interrupts(), aloud=True)
    assert bench.said[0].startswith("evaluating the last checkpoint: 20 episodes, 0 s at most")
    assert bench.said[1:] == ["000000000010.pt was not evaluated within 0 s (evaluation.final_seconds)"]


def test_ctrl_c_ends_the_waiting(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "run")
    with Interrupts() as interrupts, bench.evaluator as evaluator:
        os.kill(os.getpid(), signal.SIGINT)
        evaluator.finish(bench.save(10), interrupts, aloud=False)
    assert bench.said == ["interrupted: the last checkpoint was not evaluated"]


def test_a_checkpoint_is_asked_for_when_an_evaluation_is_due_and_not_while_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("pronk.evaluation.evaluator.time.monotonic", lambda: now)
    bench = Bench(tmp_path / "run", "evaluation.every_seconds=10")
    evaluator = bench.evaluator
    monkeypatch.setattr(evaluator, "_poll", lambda: None)
    asked = []
    for now in range(1000, 1060):
        if evaluator.wants_checkpoint():
            asked.append(now)
            evaluator.offer(bench.save(now))
        if now == 1035:
            evaluator._record(result(bench.save(now), 1.0))
    assert asked == [1010, 1036], "each 10 s after the last began, or when it has ended"


def test_a_checkpoint_that_nobody_asked_for_is_not_evaluated(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "run")
    bench.evaluator.offer(bench.save(10))
    assert not (bench.run.checkpoints.folder / "evaluating.pt").exists()


def test_evaluations_meet_no_episode_of_the_training_nor_of_pronk_eval() -> None:
    streams = [
        evaluation_seeds(1, 64, BESIDE_TRAINING),
        evaluation_seeds(1, 64),
        *(actor_seeds(1, actor, 0, 0, 64) for actor in range(4)),
    ]
    seeds = [seed for policy, environments in streams for seed in (policy, *environments)]
    assert len(set(seeds)) == len(seeds)
