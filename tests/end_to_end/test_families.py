"""Every family of docs/environments.md: the command of its row is run, and ends clearly above random play.

Minutes each: `pytest -m slow`. A family whose package is not installed is skipped, with the reason.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from pronk.config import load_config
from pronk.envs import make_env

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
PACKAGES = {
    "Box2D": "Box2D",
    "BabyAI": "minigrid",
    "Crafter": "crafter",
    "DeepMind Control": "dm_control",
    "EnvPool": "envpool",
    "MinAtar": "minatar",
    "MiniGrid": "minigrid",
    "MiniHack": "minihack",
    "MuJoCo": "mujoco",
    "NetHack": "nle",
    "PettingZoo": "mpe2",
    "PopGym": "popgym",
    "ViZDoom": "vizdoom",
}
NOT_LEARNT = {
    "NetHack": "200,000 steps are far too few, and 50 episodes of it take many minutes",
}


class Family(NamedTuple):
    name: str
    arguments: list[str]


def families() -> list[Family]:
    """The rows `| family | install | command |` of the page."""
    rows = re.findall(r"^\| ([^|`]+) \| [^|]* \| `pronk train ([^`]+)` \|", PAGE, re.MULTILINE)
    return [Family(name, shlex.split(command)) for name, command in rows]


def test_the_page_has_every_family():
    names = {family.name for family in families()}
    assert names >= set(PACKAGES) | {"classic control", "toy text"}
    for family in families():
        load_config(family.arguments[0], family.arguments[1:])


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_a_family_ends_above_random(family: Family, tmp_path: Path):
    if family.name in NOT_LEARNT:
        pytest.skip(NOT_LEARNT[family.name])
    if family.name in PACKAGES:
        pytest.importorskip(PACKAGES[family.name], reason=f"{PACKAGES[family.name]} is not installed")
    pronk("train", *family.arguments, "--run-dir", str(tmp_path / "run"), "--quiet")
    trained = json.loads(pronk("eval", str(tmp_path / "run"), "--episodes", "50", "--json"))
    chance = random_returns(family.arguments)
    upper = np.mean(chance) + 2 * np.std(chance) / len(chance) ** 0.5
    assert trained["interval"][0] > upper, f"random play: {np.mean(chance):.3g}, trained: {trained['mean']:.3g}"


def pronk(*arguments: str) -> str:
    command = [sys.executable, "-m", "pronk", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    return done.stdout


def random_returns(arguments: list[str], episodes: int = 50) -> list[float]:
    """The returns of actions drawn evenly."""
    env = make_env(load_config(arguments[0], arguments[1:]), 4)
    random, action, returns = np.random.default_rng(1), env.spec.action, []
    env.reset(list(range(1, env.count + 1)))
    while len(returns) < episodes:
        if action.choices:
            played = random.integers(action.choices, size=(env.count, len(action.choices)))
            played = played if action.shape else played[:, 0]
        else:
            played = random.uniform(-1, 1, (env.count, *action.shape)).astype(np.float32)
        ended = env.step(played).episode_return
        returns += ended[~np.isnan(ended)].tolist()
    env.close()
    return returns
