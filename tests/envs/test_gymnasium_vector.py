import math
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode
from scripted import SCRIPT, Clock, NextStepClock, earned

from pronk.config import EnvConfig
from pronk.envs.gymnasium_vector import GymnasiumVector, make
from pronk.envs.spaces import observation_encoder
from pronk.types import Step, UserError


def clocks(mode: AutoresetMode, count: int = 1) -> GymnasiumVector:
    return GymnasiumVector(gym.vector.SyncVectorEnv([Clock] * count, autoreset_mode=mode))


def play(env: GymnasiumVector, seed: int, steps: int) -> list[Step]:
    """The answers of a single environment to action 0, one after another."""
    env.reset([seed])
    return [env.step(np.zeros(1, np.int64)) for _ in range(steps)]


def seen(step: Step) -> tuple[int, int]:
    """Episode and step that the observation tells."""
    return tuple(step.observation["clock"][0, 1:].tolist())


def starting_with(*ends: tuple[int, str]) -> int:
    """A seed whose first episodes are these."""
    return next(seed for seed in range(len(SCRIPT)) if (SCRIPT + SCRIPT)[seed : seed + len(ends)] == list(ends))


def test_same_step_a_terminated_step_is_valid_and_a_new_episode_is_seen():
    *_, last, after = play(clocks(AutoresetMode.SAME_STEP), starting_with((3, "terminated")), 4)
    assert (seen(last), last.first, last.valid, last.discount) == ((1, 0), True, True, 0)
    assert last.reward == earned(0, 3, 0)
    assert last.episode_length == 3
    assert last.episode_return == sum(earned(0, step, 0) for step in (1, 2, 3))
    assert after.reward == earned(1, 1, 0)


def test_same_step_a_truncated_step_is_not_valid():
    *_, last = play(clocks(AutoresetMode.SAME_STEP), starting_with((4, "truncated")), 4)
    assert (seen(last), last.first, last.valid, last.discount) == ((1, 0), True, False, 1)
    assert last.episode_length == 4
    assert last.episode_return == sum(earned(0, step, 0) for step in (1, 2, 3, 4))


def test_next_step_the_last_observation_is_the_true_one_and_the_step_after_it_is_not_valid():
    *_, last, reset, after = play(clocks(AutoresetMode.NEXT_STEP), starting_with((4, "truncated")), 6)
    assert (seen(last), last.first, last.valid, last.discount) == ((0, 4), False, True, 1)
    assert last.episode_length == 4
    assert last.episode_return == sum(earned(0, step, 0) for step in (1, 2, 3, 4))
    assert (seen(reset), reset.first, reset.valid, reset.reward) == ((1, 0), True, False, 0)
    assert math.isnan(reset.episode_return[0])
    assert reset.episode_length == 0
    assert (seen(after), after.first, after.valid) == ((1, 1), False, True)


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_terminated_and_truncated_together_is_terminated(mode):
    _, last = play(clocks(mode), starting_with((2, "both")), 2)
    assert (last.discount, last.valid, last.episode_length) == (0, True, 2)


def test_episodes_of_one_step_in_a_row_each_count():
    seed = starting_with((1, "truncated"), (1, "truncated"), (5, "terminated"))
    same = play(clocks(AutoresetMode.SAME_STEP), seed, 2)
    assert [(*seen(s), bool(s.first[0]), bool(s.valid[0]), int(s.episode_length[0])) for s in same] == [
        (1, 0, True, False, 1),
        (2, 0, True, False, 1),
    ]
    following = play(clocks(AutoresetMode.NEXT_STEP), seed, 4)
    assert [(*seen(s), bool(s.first[0]), bool(s.valid[0]), int(s.episode_length[0])) for s in following] == [
        (0, 1, False, True, 1),
        (1, 0, True, False, 0),
        (1, 1, False, True, 1),
        (2, 0, True, False, 0),
    ]


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_a_reset_forgets_the_episode_under_way(mode):
    env = clocks(mode)
    seed = starting_with((3, "terminated"))
    for steps in (2, 3):  # in the midst of an episode, and right after its end
        play(env, seed, steps)
        again = play(env, seed, 3)
        assert [bool(step.valid[0]) for step in again] == [True, True, True]
        assert again[-1].episode_length == 3
        assert again[-1].episode_return == sum(earned(0, step, 0) for step in (1, 2, 3))


def test_an_environment_that_does_not_reset_itself_is_refused():
    with pytest.raises(UserError, match="autoreset_mode"):
        clocks(AutoresetMode.DISABLED)


class WrongShape(gym.vector.VectorEnv):
    """Says two numbers and gives one, which NumPy would broadcast."""

    metadata: ClassVar = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    single_observation_space, single_action_space = Box(-1, 1, (2,)), Discrete(2)

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        return np.zeros((self.num_envs, 1), np.float32), {}


def test_an_observation_of_the_wrong_shape_is_told():
    with pytest.raises(ValueError, match=r"shape \(1,\).*says \(2,\)"):
        GymnasiumVector(WrongShape(3)).reset([1, 2, 3])


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"id": "CartPole-v1"}, CartPoleVectorEnv),
        ({"id": "CartPole-v1", "vectorization": "sync"}, gym.vector.SyncVectorEnv),
        ({"id": "Acrobot-v1"}, gym.vector.SyncVectorEnv),
        ({"id": "scripted:Clock"}, gym.vector.SyncVectorEnv),
        ({"id": "scripted:NextStepClock"}, NextStepClock),
        ({"id": "scripted:Clock-v0"}, gym.vector.SyncVectorEnv),
    ],
    ids=lambda value: "-".join(value.values()).replace(":", "-") if isinstance(value, dict) else "",
)
def test_ids_and_classes_are_found_and_stepped_as_asked(config, kind):
    env = make(EnvConfig(**config), 2)
    try:
        assert type(env._env.unwrapped) is kind
        assert env.count == 2
    finally:
        env.close()


def test_keyword_arguments_reach_the_environment():
    env = make(EnvConfig(id="scripted:Sampled", kwargs={"observation": "bytes", "action": "box"}), 2)
    assert env.spec.observation.dtype == "uint8"
    assert env.spec.action.shape == (2,)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"id": "CartPol-v1"}, "CartPole-v1"),
        ({"id": "scripted:Clok"}, "Clock"),
        ({"id": "no_such_module:Clock"}, "no_such_module"),
        ({"id": "scripted:Clock", "vectorization": "native"}, "native"),
        ({"id": "Acrobot-v1", "vectorization": "native"}, "no vector class"),
    ],
)
def test_a_wrong_name_is_a_mistake_of_the_users_and_the_right_one_is_told(config, told):
    with pytest.raises(UserError, match=told):
        make(EnvConfig(**config), 1)


def test_an_atari_id_is_what_gymnasium_makes_of_it():
    config = EnvConfig(id="ALE/Pong-v5", kwargs={"obs_type": "grayscale"})
    env = make(config, 2)
    try:
        step = env.reset([2**40, 2**41])
        assert step.observation.shape == (2, 210, 160)
    finally:
        env.close()
    with pytest.raises(UserError, match="vectorization=native"):
        make(config.model_copy(update={"vectorization": "native"}), 2)


def test_words_in_an_observation_are_left_out():
    words = gym.spaces.Dict({"picture": gym.spaces.Box(0, 1, (2,)), "mission": gym.spaces.Text(9)})
    spec, encode = observation_encoder(words)
    assert set(spec) == set(encode({"picture": np.zeros((3, 2)), "mission": ("go", "to", "it")})) == {"picture"}


@pytest.mark.parametrize(
    ("name", "package"), [("MinAtar/Breakout-v1", "minatar"), ("MiniGrid-Empty-5x5-v0", "minigrid")]
)
def test_grids_play_by_their_ids_where_installed(name, package):
    pytest.importorskip(package)
    env = make(EnvConfig(id=name), 2)
    try:
        env.reset([1, 2])
        assert env.step(np.zeros(2, np.int64)).reward.shape == (2,)
    finally:
        env.close()
