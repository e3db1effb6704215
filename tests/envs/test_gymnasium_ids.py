"""Environments by their ids: what is found, how it is stepped, how many frames its steps take."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from scripted import Clock, NextStepClock

from pronk.config import EnvConfig
from pronk.envs.async_vector import AsyncVector
from pronk.envs.frame_skip import frames_per_step
from pronk.envs.gymnasium_ids import make
from pronk.envs.spaces import observation_encoder
from pronk.envs.sync_vector import SyncVector
from pronk.types import UserError


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"id": "CartPole-v1"}, CartPoleVectorEnv),
        ({"id": "CartPole-v1", "vectorization": "sync"}, SyncVector),
        ({"id": "CartPole-v1", "vectorization": "async"}, AsyncVector),
        ({"id": "Acrobot-v1"}, SyncVector),
        ({"id": "scripted:Clock"}, SyncVector),
        ({"id": "scripted:Clock", "vectorization": "async"}, AsyncVector),
        ({"id": "scripted:NextStepClock"}, NextStepClock),
        ({"id": "scripted:NextStepClock", "vectorization": "sync"}, NextStepClock),
        ({"id": "scripted:Clock-v0"}, SyncVector),
    ],
    ids=lambda value: "-".join(value.values()).replace(":", "-") if isinstance(value, dict) else "",
)
def test_ids_and_classes_are_found_and_stepped_as_asked(config, kind):
    env = make(EnvConfig(**config), 2)
    try:
        native = getattr(env, "_env", None)
        assert type(env if native is None else native.unwrapped) is kind
        assert env.count == 2
    finally:
        env.close()


def test_keyword_arguments_reach_the_environment():
    env = make(EnvConfig(id="scripted:Sampled", kwargs={"observation": "bytes", "action": "box"}), 2)
    assert env.spec.observation.dtype == "uint8"
    assert env.spec.action.shape == (2,)


def test_an_atari_id_is_what_gymnasium_makes_of_it():
    config = EnvConfig(id="ALE/Pong-v5", kwargs={"obs_type": "grayscale"}, wrappers=[])
    env = make(config, 2)
    try:
        step = env.reset([2**30, 2**31 - 1])
        assert step.observation.shape == (2, 210, 160)
    finally:
        env.close()
    with pytest.raises(UserError, match="vectorization=native"):
        make(config.model_copy(update={"vectorization": "native"}), 2)


def test_text_in_an_observation_is_seen():
    space = gym.spaces.Dict({"picture": gym.spaces.Box(0, 1, (2,)), "mission": gym.spaces.Text(9)})
    spec, encode = observation_encoder(space)
    seen = encode({"picture": np.zeros((3, 2)), "mission": ("go", "to", "it")})
    assert set(spec) == set(seen) == {"mission", "picture"}
    assert (seen["mission"].shape, spec["mission"].words) == ((3, 9), 1000)


@pytest.mark.parametrize(
    ("name", "package"), [("MinAtar/Breakout-v1", "minatar"), ("MiniGrid-Empty-5x5-v0", "minigrid")]
)
def test_grids_play_by_their_ids_where_installed(name, package):
    pytest.importorskip(package)
    env = make(EnvConfig(id=name), 2)
    try:
        env.reset([2**30, 2**31 - 1])
        assert env.step(np.zeros(2, np.int64)).reward.shape == (2,)
    finally:
        env.close()


# ---- frames


class Skipping(gym.Wrapper):
    """The usual wrapper of a user's."""

    def __init__(self, env: gym.Env, skip: int = 3) -> None:
        super().__init__(env)
        self._skip = skip


class Physics(Clock):
    """Like MuJoCo's environments, which have their frame skip as an attribute."""

    def __init__(self, frame_skip: int = 5) -> None:
        super().__init__()
        self.frame_skip = frame_skip


class Declared(Clock):
    metadata = {"frame_skip": 6}  # noqa: RUF012 - as Gymnasium has it


@pytest.mark.parametrize(
    ("config", "frames"),
    [
        ({"id": "ALE/Pong-v5"}, 4),
        ({"id": "ALE/Pong-v5", "kwargs": {"frameskip": 1}}, 1),
        ({"id": "ALE/Pong-v5", "kwargs": {"frameskip": 6}}, 6),
        ({"id": "ale_py:Pong-v4"}, 3),  # 2, 3 or 4 frames by chance
        ({"id": "ale_py:PongNoFrameskip-v4"}, 1),
        ({"id": "CartPole-v1"}, 1),
        ({"id": "CartPole-v1", "vectorization": "sync"}, 1),
        ({"id": "Acrobot-v1", "vectorization": "async"}, 1),
    ],
    ids=str,
)
def test_frames_of_a_step_are_those_of_the_registered_environment(config, frames):
    env = make(EnvConfig(**config), 1)
    try:
        assert env.spec.frames_per_step == frames
    finally:
        env.close()


def test_frame_skips_of_environment_and_wrappers_multiply():
    assert frames_per_step(Clock()) == 1
    assert frames_per_step(Skipping(Clock())) == 3
    assert frames_per_step(Physics()) == 5
    assert frames_per_step(Declared()) == 6
    assert frames_per_step(Skipping(Skipping(Physics(2)), 1)) == 6
    assert frames_per_step(gym.wrappers.MaxAndSkipObservation(gym.make("Acrobot-v1"), skip=2)) == 2
