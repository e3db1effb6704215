"""Mistakes that a user makes with an environment: one line that names the key and the fix, exit code 2."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import command_line
from scripted import Clock

from pronk.config import EnvConfig
from pronk.envs.gymnasium_ids import make
from pronk.types import UserError

HERE = Path(__file__).stem
# Gymnasium before 1.4 closes what it could not make, and warns that this fails.
UNMADE = "ignore::pytest.PytestUnraisableExceptionWarning"


def told(**config: Any) -> str:
    """What the user reads."""
    with pytest.raises(UserError) as caught:
        make(EnvConfig(**config), 1)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("config", "hint"),
    [
        ({"id": "CartPol-v1"}, "env.id: Gymnasium knows no environment 'CartPol-v1' (did you mean 'CartPole-v1'?)"),
        ({"id": "scripted:Clok"}, "env.id: scripted neither has nor registers 'Clok' (did you mean 'Clock'?)"),
        ({"id": "scripted:SCRIPT"}, "expected a class or function that makes an environment"),
        ({"id": "no_such_module:Clock"}, "no_such_module"),
        ({"id": "scripted:Clock", "vectorization": "native"}, "use sync or async"),
        ({"id": "Acrobot-v1", "vectorization": "native"}, "Acrobot-v1 has no vector class of its own"),
        ({"id": "collections:OrderedDict"}, "made a OrderedDict without observation_space, action_space, reset, step"),
        ({"id": f"{HERE}:many_clocks"}, "name the VectorEnv class"),
    ],
    ids=lambda value: value["id"] if isinstance(value, dict) else "",
)
def test_a_wrong_name_is_told_with_the_right_one(config, hint, monkeypatch):
    monkeypatch.setitem(sys.modules, HERE, sys.modules[__name__])
    assert hint in told(**config)


def many_clocks() -> Any:
    from scripted import NextStepClock

    return NextStepClock(2)


class Sized(Clock):
    """Wants one argument and takes another."""

    def __init__(self, size: int, speed: float = 1.0, **others: Any) -> None:
        super().__init__(**others)


@pytest.mark.parametrize(
    ("name", "kwargs", "message"),
    [
        ("CartPole-v1", {"sutton_barto_rewar": 1}, "(did you mean 'sutton_barto_reward'?)"),
        ("Acrobot-v1", {"size": 3}, "env.kwargs: Acrobot-v1 takes no 'size'; it takes render_mode"),
        ("scripted:Sampled", {"actions": "box"}, "takes no 'actions' (did you mean 'action'?); it takes observation"),
        ("scripted:NextStepClock", {"size": 3}, "env.kwargs: scripted:NextStepClock takes no 'size'"),
        ("mistakes:Sized", {"speed": 2.0}, "env.kwargs: mistakes:Sized needs size; set env.kwargs.size"),
        ("mistakes:Sized", {"size": 2, "colour": "red"}, "env.kwargs: mistakes:Sized takes no 'colour'"),
    ],
)
@pytest.mark.filterwarnings(UNMADE)
def test_a_wrong_argument_is_told_with_those_that_there_are(name, kwargs, message, monkeypatch):
    monkeypatch.setitem(sys.modules, "mistakes", sys.modules[__name__])
    assert message in told(id=name, kwargs=kwargs)


class Plain:
    """Not derived from gymnasium.Env."""

    observation_space, action_space = Clock().observation_space, Clock().action_space

    def reset(self, *, seed: int | None = None) -> Any:
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 0.0, False, False, {}

    def close(self) -> None: ...


class Older(Plain):
    observation_space = (64, 64)


def test_an_environment_needs_no_base_class_but_gymnasiums_spaces(monkeypatch):
    monkeypatch.setitem(sys.modules, "mistakes", sys.modules[__name__])
    assert make(EnvConfig(id="mistakes:Plain"), 2).reset([1, 2]).first.all()
    assert "Older has the API of the old gym package" in told(id="mistakes:Older")


class Confused(Clock):
    """A TypeError of its own, which is no mistake in the configuration."""

    def __init__(self, size: int = 1) -> None:
        Clock(nonsense=size)


def test_a_type_error_inside_the_environment_is_its_own(monkeypatch):
    monkeypatch.setitem(sys.modules, "mistakes", sys.modules[__name__])
    with pytest.raises(TypeError, match="nonsense"):
        make(EnvConfig(id="mistakes:Confused", kwargs={"size": 2}), 1)


# ---- as a user meets them

OLD = """
import {gym}
import numpy as np
from gymnasium import spaces

class Old({base}):
    observation_space, action_space = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return {reset}
    def step(self, action):
        return {step}
"""
FORGOTTEN = re.compile(
    r"(old_env|needs_cv2|gym|Box2D|mujoco|minigrid|minatar|cv2|gymnasium\.envs\.(box2d|mujoco))(\..*)?$"
)
NOW = {"gym": "gymnasium", "base": "gymnasium.Env", "reset": "np.zeros(2, np.float32), {}"}
STEP = "np.zeros(2, np.float32), 0.0, False, False, {}"
OLD_STEP = "np.zeros(2, np.float32), 0.0, False, {}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder whose modules are imported before all others, and forgotten with the test."""
    monkeypatch.syspath_prepend(tmp_path)
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if FORGOTTEN.match(name)}
    yield tmp_path
    for name in [name for name in sys.modules if FORGOTTEN.match(name)]:
        del sys.modules[name]
    sys.modules.update(kept)


def train(folder: Path, env: str, *changes: str) -> str:
    """The one line that `pronk train` writes."""
    done = command_line("train", env, *changes, "--run-dir", folder / "run", "--quiet")
    assert done.code == 2, done.err
    assert len(done.err.strip().splitlines()) == 1, done.err
    assert not (folder / "run").exists(), "nothing is written"
    return done.err


@pytest.mark.parametrize(
    ("parts", "sign"),
    [
        ({**NOW, "reset": "np.zeros(2, np.float32)", "step": OLD_STEP}, "reset() did not return (observation, info)"),
        ({**NOW, "step": OLD_STEP}, "step() returned 4 values"),
        ({**NOW, "gym": "gym", "base": "gym.Env", "step": STEP}, "it is derived from gym.Env"),
    ],
    ids=["reset", "step", "class"],
)
def test_an_environment_of_the_old_gym_api(parts, sign, folder):
    (folder / "old_env.py").write_text(OLD.format(**parts))
    if parts["gym"] == "gym":
        (folder / "gym.py").write_text("class Env: ...")
    err = train(folder, "old_env:Old")
    assert "env.id: Old has the API of the old gym package" in err
    assert sign in err
    assert "update the environment, or wrap it with shimmy" in err


def test_an_environment_that_imports_the_old_gym_where_it_is_not_installed(folder):
    (folder / "old_env.py").write_text("import gym")
    (folder / "gym.py").write_text("raise ModuleNotFoundError(\"No module named 'gym'\", name='gym')")
    assert "env.id: old_env:Old imports gym, which is not installed" in train(folder, "old_env:Old")


@pytest.mark.parametrize(
    ("env", "package", "fix"),
    [
        ("LunarLander-v3", "Box2D", "pip install 'pronk[box2d]'"),
        ("HalfCheetah-v5", "mujoco", "pip install 'pronk[mujoco]'"),
        ("MiniGrid-Empty-5x5-v0", "minigrid", "pip install 'pronk[minigrid]'"),
        ("MinAtar/Breakout-v1", "minatar", "pip install 'pronk[minatar]'"),
        ("needs_cv2:Env", "cv2", "pip install 'opencv-python'"),
    ],
)
def test_a_missing_package_of_an_environment(env, package, fix, folder):
    """A module of that name that raises what the import of a missing package does stands for one."""
    (folder / f"{package}.py").write_text(f"raise ModuleNotFoundError('No module named {package}', name='{package}')")
    (folder / "needs_cv2.py").write_text("import cv2")
    err = train(folder, env)
    assert f"env.id: {env} needs" in err
    assert fix in err


@pytest.mark.filterwarnings(UNMADE)
def test_a_wrong_argument_of_an_environment(folder):
    err = train(folder, "CartPole-v1", "env.kwargs.gravitation=10")
    assert "env.kwargs: CartPole-v1 takes no 'gravitation'; it takes " in err
