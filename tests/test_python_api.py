"""The Python API: what `pronk.train` takes, callbacks, `Trainer`, and what a loaded policy answers."""

from __future__ import annotations

import io
import json
import pydoc
import subprocess
import sys
import threading
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from processes import read_metrics

import pronk
from pronk.config import load_config
from pronk.processes import session

SMALL = ["actors.count=1", "actors.envs=4", "actors.unroll_length=5", "learner.batch_size=4", "learner.passes=1"]
HERE = [*SMALL, "transport=local", "run.stop_return=null"]


# ---- help


def test_dir_and_help_show_what_there_is() -> None:
    assert {"train", "load", "evaluate", "Trainer", "TrainedPolicy", "UserError", "Failure"} <= set(dir(pronk))
    shown = io.StringIO()
    with redirect_stdout(shown):
        pydoc.doc(pronk, output=shown)
    text = shown.getvalue()
    assert "pronk.train(MyEnv, on_metrics=print" in text
    for name in ("train(", "class Trainer(", "class TrainedPolicy(", "evaluate("):
        assert name in text, name


def test_exceptions_are_exported() -> None:
    with pytest.raises(pronk.UserError, match=r"no preset 'cartpol'"):
        pronk.train("cartpol")
    assert issubclass(pronk.TrainingInterrupted, KeyboardInterrupt)


# ---- environments of a script, a notebook or a function

SCRIPT = """
import gymnasium
import numpy as np
import pronk

GOAL = 3  # a global of the script

class Coin(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (GOAL,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, reward=1.0):
        self.reward = reward

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(GOAL, np.float32), {}

    def step(self, action):
        return np.zeros(GOAL, np.float32), self.reward * float(action), True, False, {}

sizes = ["actors.count=2", "actors.envs=4", "learner.batch_size=4", "run.total_steps=2000", "evaluation=true"]
summary = pronk.train(Coin, [*sizes, "env.kwargs.reward=100"], run_dir="run")
print(summary["outcome"], summary["episode_return"] > 10, summary["evaluation"]["mean"] > 10)
print(len(pronk.evaluate("run", 4).returns), pronk.load("run").act(np.zeros(GOAL)) in (0, 1))
factor = 5.0
summary = pronk.train(lambda: Coin(factor), sizes, run_dir="other")
print(summary["outcome"], summary["episode_return"] > 1)
try:
    pronk.train(Coin, [*sizes, "gateway.address=127.0.0.1:0"])
except pronk.UserError as error:
    print(error)
"""


def test_an_environment_of_a_script_trains_with_actor_processes(tmp_path: Path) -> None:
    """The script has no `if __name__ == "__main__"`: actors must not run it again."""
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, timeout=200, cwd=tmp_path)
    assert done.stdout.splitlines() == [
        "finished True True",
        "4 True",
        "finished True",
        "gateway.address: __main__:Coin is defined in this script or notebook, whose code is not sent over the "
        "network; put it in a module of its own that every machine has",
    ], done.stderr
    assert not [path for path in (tmp_path / "run").rglob("*") if path.suffix in (".pkl", ".pickle")]
    command = [sys.executable, "-m", "pronk", "eval", "run", "--episodes", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert done.returncode == 2
    assert "__main__:Coin was defined in another Python session" in done.stderr


def test_what_cannot_be_pickled_is_one_line() -> None:
    lock = threading.Lock()

    def make() -> Any:
        with lock:
            return None

    name = session.name_of(make)
    with pytest.raises(pronk.UserError, match=r"make cannot be sent to actor processes: .*transport=local"):
        session.share([name])


def test_importable_classes_keep_their_name() -> None:
    assert load_config(CartPoleEnv).env.id == "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
    assert load_config(lambda: None).env.id == "__main__:lambda"


# ---- callbacks


class Steps(gym.Env):
    """Episodes of three steps; info has a number in each step, and another in the last."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        over = self.t == 3
        info = {"t": self.t, "word": "no number"} | ({"success": 0.25} if over else {})
        return np.zeros(2, np.float32), 1.0, over, False, info


def test_callbacks_see_metrics_episodes_and_checkpoints(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = []
    episodes: list[dict[str, Any]] = []
    saved: list[Path] = []
    summary = pronk.train(
        Steps,
        [*HERE, "run.total_steps=100", "env.info=[t, success, word]", "run.log_every_seconds=1e-9"],
        run_dir=tmp_path / "run",
        on_metrics=lines.append,
        on_episode=episodes.append,
        on_checkpoint=saved.append,
    )
    assert summary["outcome"] == "finished"
    assert [line["updates"] for line in lines] == [line["updates"] for line in read_metrics(tmp_path / "run")]
    assert saved[-1] == Path(summary["checkpoint"])
    assert len(episodes) == summary["episodes"] > 20
    expected = {"episode_return": 3.0, "episode_length": 3, "task": "default", "info/t": 3.0, "info/success": 0.25}
    assert all(episode.items() >= expected.items() for episode in episodes)
    assert {episode["environment"] for episode in episodes} == {0, 1, 2, 3}
    means = [line["info/t"] for line in lines]
    assert np.average(means) == pytest.approx(2.0, abs=0.1)
    assert {line.get("info/success") for line in lines} <= {0.25, None}
    assert not any("info/word" in line for line in lines)


def test_a_callback_that_returns_false_stops_the_run(tmp_path: Path) -> None:
    calls: list[int] = []

    def stop(line: dict[str, Any]) -> bool:
        calls.append(line["updates"])
        return len(calls) < 3

    settings = [*HERE, "run.total_steps=1e6", "run.log_every_seconds=1e-9"]
    summary = pronk.train("catch", settings, run_dir=tmp_path / "run", on_metrics=stop)
    assert (summary["outcome"], summary["updates"], calls) == ("stopped", 3, [1, 2, 3])
    assert Path(summary["checkpoint"]).exists()
    assert json.loads((tmp_path / "run/summary.json").read_text())["outcome"] == "stopped"


def test_an_exception_of_a_callback_ends_the_run_and_is_raised(tmp_path: Path) -> None:
    def fail(path: Any) -> None:
        raise ZeroDivisionError("mine")

    settings = [*HERE, "run.total_steps=1e6", "run.log_every_seconds=1e-9"]
    with pytest.raises(ZeroDivisionError, match="mine"):
        pronk.train("catch", settings, run_dir=tmp_path / "run", on_metrics=fail)
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert (summary["outcome"], summary["failure"]) == ("failed", "mine")
    with pytest.raises(ZeroDivisionError):  # at the very end, too: this is the last checkpoint
        pronk.train("catch", [*HERE, "run.total_steps=20"], run_dir=tmp_path / "other", on_checkpoint=fail)


def test_info_of_a_vector_environment() -> None:
    from pronk.envs.gymnasium_vector import numbers_of

    info = {"a": np.array([1.0, 0.0]), "_a": np.array([True, False]), "final_info": {"b": np.array([5, 6])}}
    np.testing.assert_array_equal(numbers_of(info, "a", 2), [1.0, np.nan])
    np.testing.assert_array_equal(numbers_of(info, "b", 2), [5.0, 6.0])
    np.testing.assert_array_equal(numbers_of(info, "c", 2), [np.nan, np.nan])


# ---- Trainer


def test_trainer_steps_pauses_changes_and_stops(tmp_path: Path) -> None:
    with pronk.Trainer("catch", [*HERE, "run.total_steps=1e6"], run_dir=tmp_path / "run") as trainer:
        assert trainer.step(3)
        assert trainer.metrics["updates"] == 3
        before = trainer.metrics["wall_seconds"]
        early = trainer.policy(deterministic=True)
        trainer.set("optimiser.schedule", "constant")
        trainer.set("optimiser.learning_rate", 0.02)
        time.sleep(0.5)
        assert trainer.step(5)
        assert trainer.metrics["wall_seconds"] - before < 0.45
        with pytest.raises(pronk.UserError, match=r"actors\.envs cannot change while the run is on"):
            trainer.set("actors.envs", 8)
        with pytest.raises(pronk.UserError, match=r"optimiser\.learning_rate must be greater than 0"):
            trainer.set("optimiser.learning_rate", -1)
        late = trainer.policy(deterministic=True)
        seen = np.random.default_rng(1).random((8, 10, 5), np.float32)
        assert not np.allclose(early.decide(seen).value, late.decide(seen).value)
        assert trainer.summary == {}
    assert trainer.summary["outcome"] == "stopped"
    assert trainer.summary["learning_rate"] == pytest.approx(0.02)
    assert "learning_rate: 0.02" in (tmp_path / "run/config.yaml").read_text()
    assert not trainer.step()


def test_trainer_runs_to_the_end_as_train_does(tmp_path: Path) -> None:
    settings = [*HERE, "run.total_steps=400"]
    whole = pronk.train("catch", settings, run_dir=tmp_path / "whole")
    trainer = pronk.Trainer("catch", settings, run_dir=tmp_path / "stepped")
    while trainer.step(2):
        trainer.policy()
    assert trainer.summary["outcome"] == "finished"
    assert {key: trainer.summary[key] for key in ("env_steps", "updates", "loss")} == {
        key: whole[key] for key in ("env_steps", "updates", "loss")
    }


def test_trainer_refuses_several_learners() -> None:
    with pytest.raises(pronk.UserError, match="drives one learner"):
        pronk.Trainer("catch", ["learners=2", "learner.batch_size=4"])


# ---- TrainedPolicy


@pytest.fixture(scope="module", params=["none", "lstm"])
def policy(request: Any, tmp_path_factory: Any) -> pronk.TrainedPolicy:
    run = tmp_path_factory.mktemp("api") / "run"
    with pronk.Trainer(
        "catch", [*HERE, f"network.core={request.param}", "network.core_size=8"], run_dir=run
    ) as trainer:
        trainer.step(3)
    return pronk.load(run, deterministic=True)


def test_values_and_log_probs_of_a_batch_are_the_networks(policy: pronk.TrainedPolicy) -> None:
    seen = np.random.default_rng(1).random((6, 10, 5), np.float32)
    policy.reset()
    made = policy.decide(seen)
    network = policy._network
    output = network(torch.from_numpy(seen)[None], torch.ones(1, 6, dtype=torch.bool), network.initial_state(6))
    values = network.value(output.value, torch.zeros(6, dtype=torch.int32)).estimate
    np.testing.assert_allclose(made.value, values[0].detach(), rtol=1e-5)
    log_prob = network.distribution(output.policy, torch.from_numpy(seen)[None]).log_prob(
        torch.from_numpy(made.action)[None]
    )
    np.testing.assert_allclose(made.log_prob, log_prob[0].detach(), rtol=1e-5)


def test_one_observation_is_as_one_of_n(policy: pronk.TrainedPolicy) -> None:
    seen = np.random.default_rng(2).random((2, 3, 10, 5), np.float32)  # two steps of three environments
    policy.reset()
    first, second = policy.decide(seen[0]), policy.decide(seen[1])
    for column in range(3):
        policy.reset()
        policy.decide(seen[0, column])
        one = policy.decide(seen[1, column])
        assert one.action == second.action[column]
        assert isinstance(one.value, float)
        assert one.value == pytest.approx(float(second.value[column]), rel=1e-4)
    policy.reset()
    again = policy.decide(seen[1], state=first.state)  # continues from there, but the episode opens here
    assert np.shape(again.value) == (3,)


def test_reset_of_some(policy: pronk.TrainedPolicy) -> None:
    seen = np.random.default_rng(3).random((2, 10, 5), np.float32)
    policy.reset()
    fresh = policy.decide(seen)
    policy.reset([True, False])
    mixed = policy.decide(seen)
    assert mixed.value[0] == pytest.approx(fresh.value[0])
    with pytest.raises(pronk.UserError, match=r"3 observations after 2: call reset"):
        policy.decide(np.zeros((3, 10, 5), np.float32))
    with pytest.raises(pronk.UserError, match=r"neither one of this environment's nor N of them"):
        policy.decide(np.zeros((4, 5), np.float32))
    policy.reset()
    assert policy.act(np.zeros((10, 5), np.float32)) in (0, 1, 2)


def test_nothing_is_compiled_to_disk_while_a_run_is_trained(tmp_path):
    """On a full disk Python would leave a truncated file, which breaks every later start."""
    seen, before = [], sys.dont_write_bytecode
    settings = ["transport=local", "run.total_steps=500", "run.stop_return=null"]
    pronk.train(
        "catch", settings, run_dir=tmp_path / "run", on_metrics=lambda line: seen.append(sys.dont_write_bytecode)
    )
    assert set(seen) == {True}
    assert sys.dont_write_bytecode == before
