import gymnasium as gym
import pytest

from pronk.config import load_config
from pronk.envs.base import probe_spec
from pronk.envs.time_limit import time_limit_of


def test_the_limit_of_a_registered_environment():
    assert time_limit_of(gym.make("Acrobot-v1")) == 500
    assert time_limit_of(gym.make("Acrobot-v1", max_episode_steps=30)) == 30


def test_an_environment_without_a_limit_has_none():
    assert time_limit_of(gym.make("Blackjack-v1")) == 0


def test_the_shortest_of_several_limits_counts():
    assert time_limit_of(gym.wrappers.TimeLimit(gym.make("Acrobot-v1"), 20)) == 20


def test_a_frame_skip_around_the_limit_takes_several_steps_at_once():
    skipping = gym.wrappers.MaxAndSkipObservation(gym.make("Acrobot-v1", max_episode_steps=50), skip=4)
    assert time_limit_of(skipping) == 13
    assert time_limit_of(gym.wrappers.TimeLimit(skipping, 12)) == 12


@pytest.mark.parametrize("stepped", ["sync", "async"])
def test_the_agent_s_spec_has_it(stepped):
    settings = [f"env.vectorization={stepped}", "env.kwargs.max_episode_steps=60", "actors.envs=1"]
    assert probe_spec(load_config("Acrobot-v1", settings)).time_limit == 60
