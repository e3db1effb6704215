import json
import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import torch
from own_parts import Diary

from pronk.config import load_config
from pronk.evaluation.playing import Evaluation, evaluate
from pronk.evaluation.trained_policy import load
from pronk.runs.directory import RunDirectory
from pronk.seeding import evaluation_seeds
from pronk.starting import train
from pronk.types import UserError

SHORT = ["transport=local", "run.total_steps=640", "actors.envs=8", "learner.batch_size=8", "network.hidden=[16]"]
UNTAUGHT = ["optimiser.learning_rate=1e-12"]  # the random weights of the start: their actions vary
MEMORY = {
    "none": [],
    "lstm": ["network.core=lstm", "network.core_size=16"],
    "last": ["network.last_action=true", "network.last_reward=true"],
    "both": ["network.core=lstm", "network.core_size=16", "network.last_action=true", "network.last_reward=true"],
}


@pytest.fixture
def trained(tmp_path):
    """Trains for a moment and gives the run directory."""

    def make(source, *overrides):
        path = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        train(load_config(source, [*SHORT, *overrides]), run_dir=path)
        return path

    return make


def played(player, env, seed, forgetful=False):
    """The return of one episode in a plain Gymnasium environment."""
    observation, _ = env.reset(seed=seed)
    player.reset()
    total, reward, ended = 0.0, 0.0, False
    while not ended:
        if forgetful:
            player.reset()
        action = player.act(observation, reward)
        assert env.action_space.contains(action), action
        observation, reward, terminated, truncated, _ = env.step(action)
        total, ended = total + float(reward), terminated or truncated
    return total


# ---- the player


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("view", ["box", "dict", "tuple"])
def test_a_loaded_policy_plays_as_it_is_evaluated(trained, view, memory):
    run = trained("own_parts:Diary", f"env.kwargs={{view: {view}, length: 23}}", *UNTAUGHT, *MEMORY[memory])
    player, env = load(run, deterministic=True), Diary(view, 23)
    seeds = (1, 2, 3, 4)
    returns = [evaluate(run, 1, deterministic=True, seed=seed).returns[0] for seed in seeds]
    env_seeds = [evaluation_seeds(seed, 1)[1][0] for seed in seeds]
    assert [played(player, env, seed) for seed in env_seeds] == returns
    forgotten = [played(player, env, seed, forgetful=True) for seed in env_seeds]
    assert (forgotten == returns) == (memory == "none")


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_a_loaded_policy_plays_a_plain_gymnasium_environment(trained, name):
    player = load(trained(name))
    assert np.isfinite(played(player, gymnasium.make(name), seed=3))


def test_a_loaded_policy_repeats_itself_by_its_seed(trained):
    run, env = trained("own_parts:Diary", *UNTAUGHT), Diary()
    one, same, other = (played(load(run, seed=seed), env, 1) for seed in (1, 1, 2))
    assert one == same != other


# ---- the evaluation


@pytest.mark.parametrize("episodes", [1, 5, 64, 100])
def test_exactly_the_wanted_episodes_are_played_to_their_end(trained, episodes):
    result = evaluate(trained("own_parts:Diary"), episodes)
    assert (len(result.returns), result.lengths) == (episodes, [12] * episodes)


@pytest.mark.parametrize("episodes", [10, 128])
def test_short_episodes_are_not_favoured(trained, episodes):
    result = evaluate(trained("own_parts:Halves"), episodes)
    assert result.returns.count(1.0) == result.returns.count(0.0) == episodes // 2
    assert sorted(result.lengths) == [1] * (episodes // 2) + [30] * (episodes // 2)


def test_likeliest_actions_do_not_vary_and_sampled_ones_do(trained):
    run = trained("own_parts:Diary", "network=own_parts:Linear", "network.kwargs.gain=0", *UNTAUGHT)
    assert len(set(evaluate(run, 20, deterministic=True).returns)) == 1
    assert len(set(evaluate(run, 20).returns)) > 5


def test_an_evaluation_repeats_itself_by_its_seed(trained):
    run = trained("own_parts:Diary", *UNTAUGHT)
    assert evaluate(run, 8, seed=3) == evaluate(run, 8, seed=3) != evaluate(run, 8, seed=4)


def test_the_best_and_the_newest_checkpoint_are_told_apart(trained):
    path = trained("own_parts:Diary", *UNTAUGHT)
    before = evaluate(path, 8, deterministic=True)
    run = RunDirectory.open(path)
    state, _ = run.checkpoints.restore()
    state["learner"]["network"] = {name: torch.zeros_like(w) for name, w in state["learner"]["network"].items()}
    state["metrics"]["env_steps"] += 1
    run.checkpoints.save(state, keep=3)
    assert evaluate(path, 8, deterministic=True, best=True) == before
    assert evaluate(path, 8, deterministic=True).returns == [0.0] * 8


def test_the_summary_is_as_by_hand():
    summary = Evaluation([1.0, 2.0, 3.0, 6.0], [1, 1, 1, 5]).summary()
    deviation = np.sqrt((2**2 + 1**2 + 0**2 + 3**2) / 3)
    assert summary["std"] == pytest.approx(deviation)
    assert summary["interval"] == pytest.approx([3 - 1.96 * deviation / 2, 3 + 1.96 * deviation / 2])
    exact = {"episodes": 4, "mean": 3.0, "min": 1.0, "max": 6.0, "mean_length": 2.0}
    assert {name: summary[name] for name in exact} == exact
    assert Evaluation([5.0], [2]).summary()["interval"] == [5.0, 5.0]


# ---- which run


def test_runs_are_found_by_path_by_name_and_as_the_last(trained, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    old, new = (trained("own_parts:Diary", f"run.seed={seed}", *UNTAUGHT) for seed in (1, 2))
    os.utime(old / "config.yaml", (1, 1))
    (tmp_path / "runs").mkdir()
    old.rename("runs/old")
    new.rename("runs/new")
    returns = {name: evaluate(name, 3, deterministic=True).returns for name in ("runs/old", "runs/new")}
    assert returns["runs/old"] != returns["runs/new"]
    assert evaluate("old", 3, deterministic=True).returns == returns["runs/old"]
    assert evaluate("last", 3, deterministic=True).returns == returns["runs/new"]


def test_what_cannot_be_evaluated_is_said(trained, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="no run under runs/"):
        evaluate("last")
    with pytest.raises(UserError, match="no run directory nowhere"):
        evaluate("nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty is not a run directory.*config.yaml"):
        evaluate("empty")
    run = trained("catch", "env.kwargs.rows=200")
    with pytest.raises(UserError, match="no best checkpoint"):
        evaluate(run, best=True)
    for file in (run / "checkpoints").iterdir():
        file.unlink()
    with pytest.raises(UserError, match="no checkpoint"):
        evaluate(run)
    with pytest.raises(UserError, match="0"):
        evaluate(run, 0)


# ---- the library


def test_the_public_names_work_in_any_order(tmp_path):
    program = """
import json, pathlib, sys
import pronk
assert "torch" not in sys.modules
run = sys.argv[1] + "/run"
config = pronk.load_config("catch", ["transport=local", "run.total_steps=640"])
assert isinstance(config, pronk.Config)
file = pathlib.Path(sys.argv[1]) / "mine.yaml"
file.write_text(config.to_yaml())
summary = pronk.train(file, run_dir=run)
assert summary == json.loads(pathlib.Path(run, "summary.json").read_text())
pronk.load(run)
returns = pronk.evaluate(run, 2).returns
again = pronk.train(config, ["run.total_steps=320"], run_dir=run + "2")
print(json.dumps([len(returns), summary["env_steps"], again["env_steps"]]))
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert done.stderr == ""
    assert json.loads(done.stdout) == [2, 640, 320]


OWN_ENVIRONMENT = """
import gymnasium
import numpy as np

class Coin(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, reward=1.0):
        self.reward = reward

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        return np.zeros(3, np.float32), self.reward * float(action), True, False, {}
"""


def test_training_takes_a_class_of_environments_with_actor_processes(tmp_path):
    (tmp_path / "coin.py").write_text(OWN_ENVIRONMENT)
    program = """
import pronk
from coin import Coin
sizes = ["actors.count=1", "actors.envs=4", "learner.batch_size=4", "run.total_steps=1000"]
summary = pronk.train(Coin, [*sizes, "env.kwargs.reward=100"], run_dir="run")
print(summary["outcome"], summary["episode_return"] > 10)
"""
    (tmp_path / "script.py").write_text(program)
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert done.stdout == "finished True\n", done.stderr
