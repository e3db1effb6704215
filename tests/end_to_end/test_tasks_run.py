"""Several tasks, one set of weights, through the command line: a run in this process, and what can be done with it."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import command_line, read_metrics, read_summary
from task_envs import Wage

from pronk.actor import first_dealt
from pronk.config import load_config, resolve
from pronk.dashboard.answers import curve, one_run
from pronk.envs import make_env
from pronk.evaluation.trained_policy import load
from pronk.plotting import plot
from pronk.runs.reading import Run
from pronk.types import UserError

TASKS = """
env:
  id: task_envs:Wage
  tasks:
  - {name: cents, kwargs: {pay: 0.01}}
  - {name: coins, kwargs: {pay: 1.0, length: 8}}
  - {name: gold, kwargs: {pay: 100.0}}
network: {hidden: [8]}
actors: {count: 2, envs: 4, unroll_length: 16, slots: 1}
learner: {batch_size: 4, passes: 1}
optimiser: {learning_rate: 1.0e-3}
run: {log_every_seconds: 1.0e-9}
"""
RETURNS = {"cents": 0.04, "coins": 8.0, "gold": 400.0}  # of an episode, whatever the agent does
MEAN = sum(RETURNS.values()) / 3
UPDATE = 4 * 16  # steps


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "tasks.yaml").write_text(TASKS)
    return folder


def trained(folder: Path, name: str, *overrides: str) -> Path:
    """Train the tasks until their return is confirmed."""
    run = folder / name
    goal = ["run.stop_return=136", "run.total_steps=1000000"]
    ended = command_line("train", folder / "tasks.yaml", *goal, *overrides, "--run-dir", run, "--quiet")
    assert ended.code == 0, ended.err
    return run


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    return trained(folder, "run", "transport=local")


def assert_tasks_are_learnt(run: Path) -> None:
    summary = read_summary(run)
    assert summary["outcome"] == "solved", "the mean over the tasks is the goal's"
    assert summary["episode_return"] == pytest.approx(MEAN)
    for name, value in RETURNS.items():
        assert summary[f"episode_return/{name}"] == pytest.approx(value)


def test_each_task_has_its_return_in_metrics_and_summary(run: Path) -> None:
    assert_tasks_are_learnt(run)
    lines = read_metrics(run)
    assert {f"episode_return/{name}" for name in RETURNS} <= lines[0].keys()
    first = next(line for line in lines if line["episode_return"] is not None)
    assert first["episode_return"] == pytest.approx(MEAN), "only once every task has an episode"
    assert Run(run).tasks == tuple(RETURNS)
    assert Run(run).environment == "cents and 2 more tasks"


def test_an_evaluation_has_a_row_for_each_task(run: Path) -> None:
    shown = command_line("eval", run, "--episodes", "3").out
    assert [line.split()[0] for line in shown.splitlines()[1:4]] == list(RETURNS)
    assert "9 episodes of 3 tasks" in shown
    summary = json.loads(command_line("eval", run, "--episodes", "3", "--json").out)
    assert summary["episodes"] == 9
    assert summary["mean"] == pytest.approx(MEAN)
    assert {name: task["mean"] for name, task in summary["tasks"].items()} == pytest.approx(RETURNS)
    assert {task["episodes"] for task in summary["tasks"].values()} == {3}
    only = json.loads(command_line("eval", run, "--episodes", "3", "--json", "--task", "coins").out)
    assert (only["mean"], only["episodes"], "tasks" in only) == (8.0, 3, False)
    ended = command_line("eval", run, "--task", "cent")
    assert ended.code == 2
    assert ended.err == "error: no task 'cent' (did you mean 'cents'?); there are cents, coins, gold\n"


def test_a_resumed_run_keeps_its_tasks(run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(run, tmp_path / "run"))  # other tests read the finished one
    steps = read_summary(run)["env_steps"] + 4 * UPDATE
    more = ["run.stop_return=null", f"run.total_steps={steps}"]
    ended = command_line("train", run, "--resume", "env.tasks=[task_envs:Wage]", "--quiet")
    assert ended.code == 2
    assert "env.tasks cannot change in a resumed run, which has cents, coins, gold" in ended.err
    assert command_line("train", run, "--resume", *more, "--quiet").code == 0
    line = read_metrics(run)[-1]
    assert line["env_steps"] >= steps
    assert line["episode_return/coins"] == pytest.approx(8.0)


def test_every_task_has_a_panel_and_a_curve(run: Path, tmp_path: Path) -> None:
    plot(run, tmp_path / "plot.svg")
    text = (tmp_path / "plot.svg").read_text()
    assert all(f"<!-- {name} -->" in text for name in RETURNS)
    columns = curve(run.parent, {"run": [run.name]})["columns"]
    assert columns["episode_return/gold"][-1] == pytest.approx(400.0)
    assert one_run(run.parent, {"run": [run.name]})["env"] == "cents and 2 more tasks"


def test_the_agent_can_be_watched_loaded_and_exported_in_any_task(run: Path, tmp_path: Path) -> None:
    shown = command_line("watch", run, "--text", "--task", "gold").out
    assert "episode 1 ended: return 400 in 4 steps" in shown
    player, env = load(run, task="gold"), Wage(100.0)
    observation, _ = env.reset()
    assert env.action_space.contains(player.act(observation))
    with pytest.raises(UserError, match="no task 'silver'"):
        load(run, task="silver")
    file = tmp_path / "policy.pt"
    assert command_line("export", run, "--to", "torchscript", "--out", file, "--task", "coins").code == 0
    assert file.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        ("transport=shared_memory",),
        ("transport=shared_memory", "actors.inference=central"),
        ("transport=grpc",),
        ("transport=local", "learners=2", "learner.batch_size=8"),
        ("transport=local", "env.vectorization=async", "replay.size=50"),
        ("transport=local", "env.task_observed=true", "network.core=lstm", "network.core_size=8"),
    ],
)
def test_tasks_are_learnt_wherever_actors_and_learners_run(folder: Path, overrides: tuple[str, ...]) -> None:
    evaluated = ("evaluation.enabled=true", "evaluation.episodes=2", "evaluation.every_seconds=0.1")
    run = trained(folder, "-".join(overrides).replace("=", "_"), *overrides, *evaluated)
    assert_tasks_are_learnt(run)
    line = Run(run).evaluations[-1]
    assert {name: line[f"mean/{name}"] for name in RETURNS} == pytest.approx(RETURNS)
    assert line["mean"] == pytest.approx(MEAN)
    assert (line["episodes"], line["episodes/gold"]) == (6, 2)


def test_actors_are_dealt_the_tasks_they_say(run: Path) -> None:
    """With 2 actors of 4 environments, 3 tasks: 3, 3 and 2."""
    config = resolve(load_config(run.parent / "tasks.yaml"))
    played: Counter[int] = Counter()
    for index in range(config.actors.count):
        env = make_env(config, config.actors.envs, first_dealt(config, index))
        played.update(env.task.tolist())
        env.close()
    assert sorted(played.values()) == [2, 3, 3]
    state = torch.load(run / "checkpoints" / "best.pt", weights_only=True)
    scale = state["learner"]["network"]["_value_head.scale"]
    assert np.all(np.diff(scale.numpy()) > 0), "a scale of its own for each task"


@pytest.mark.slow
@pytest.mark.parametrize("popart", [True, False])
def test_with_popart_a_task_with_large_rewards_does_not_drown_the_other(popart: bool, tmp_path: Path) -> None:
    """Shares of the highest return. By chance it is a quarter; answering as in the other task is worse."""
    (tmp_path / "signals.yaml").write_text("""
env:
  id: task_envs:Signal
  tasks: [{name: small, kwargs: {pay: 1.0}}, {name: large, kwargs: {pay: 100.0, shift: 1}}]
actors: {envs: 8, unroll_length: 16, slots: 1}
learner: {batch_size: 8, passes: 2}
optimiser: {learning_rate: 1.0e-3}
run: {total_steps: 20_000}
""")
    settings = (f"network.popart={popart}".lower(), "transport=local")
    ended = command_line("train", tmp_path / "signals.yaml", *settings, "--run-dir", tmp_path / "run", "--quiet")
    assert ended.code == 0, ended.err
    summary = read_summary(tmp_path / "run")
    small, large = summary["episode_return/small"] / 4, summary["episode_return/large"] / 400
    assert large > 0.6
    assert small > 0.6 if popart else small < 0.25
