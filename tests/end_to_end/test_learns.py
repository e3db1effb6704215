"""What Pronk learns by a Gymnasium id and a few overrides. Minutes each: `pytest -m slow`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# What to train, and the mean return of 100 episodes that counts as learnt.
LEARNT = {
    "acrobot": (["Acrobot-v1", "run.total_steps=400000"], -100),
    "pendulum (Box actions)": (["Pendulum-v1"], -250),
    "taxi (Discrete observation)": (["Taxi-v4"], 0),
    "blackjack (Tuple observation)": (["Blackjack-v1", "run.total_steps=500000"], -0.15),
    "masked actions": (["examples.environments:Forbidden", "run.total_steps=300000"], 9.9),
    "memory (LSTM)": (
        ["examples.environments:Recall", "network.core=lstm", "network.core_size=64", "run.total_steps=300000"],
        0.95,
    ),
    "memory (GRU)": (
        ["examples.environments:Recall", "network.core=gru", "network.core_size=64", "run.total_steps=300000"],
        0.95,
    ),
    "memory (attention)": (
        ["examples.environments:Recall", "network.core=attention", "network.core_size=64", "run.total_steps=300000"],
        0.95,
    ),
    "memory of pictures (LSTM)": (
        [
            *("examples.environments:RecallPicture", "network.torso=small", "network.core=lstm"),
            *("network.core_size=64", "run.total_steps=300000"),
        ],
        0.95,
    ),
    "instructions (text)": (["examples.environments:Instructed", "run.total_steps=400000"], 0.95),
    "episodes of 1 to 5 steps": (["examples.environments:Countdown", "run.total_steps=300000"], 0.99),
}


def pronk(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pronk", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=800
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def trained_return(run: Path, *arguments: str) -> float:
    pronk("train", *arguments, "--run-dir", str(run), "--quiet")
    return json.loads(pronk("eval", str(run), "--episodes", "1000", "--json"))["mean"]


@pytest.mark.parametrize("name", LEARNT)
def test_it_learns(name, tmp_path):
    arguments, goal = LEARNT[name]
    assert trained_return(tmp_path / "run", *arguments) >= goal


@pytest.mark.parametrize(
    "task", [["examples.environments:Recall"], ["examples.environments:RecallPicture", "network.torso=small"]]
)
def test_without_a_memory_the_memory_task_stays_a_guess(task, tmp_path):
    assert trained_return(tmp_path / "run", *task, "run.total_steps=100000") < 0.35


@pytest.mark.parametrize("seed", range(1, 11))
def test_cartpole_is_solved_with_every_seed(seed, tmp_path):
    assert trained_return(tmp_path / "run", "cartpole", "--seed", str(seed)) >= 475
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["outcome"] == "solved"
