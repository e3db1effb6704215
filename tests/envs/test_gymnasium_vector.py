"""Vector environments that reset themselves, in both of Gymnasium's modes."""

import math
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode
from scripted import SCRIPT, Clock, NextStepClock, SameStepClock, earned

from pronk.envs import VectorEnv, gymnasium_vector
from pronk.envs.gymnasium_vector import adapt
from pronk.types import Step, UserError, map_tree

MODES = {"next-step": NextStepClock, "same-step": SameStepClock}


def play(env: VectorEnv, seeds: list[int], steps: int) -> list[Step]:
    """The answers to action 0, one after another, copied: the arrays may be reused."""
    env.reset(seeds)
    action = np.zeros(env.count, np.int64)
    return [Step(*(map_tree(np.copy, field) for field in env.step(action))) for _ in range(steps)]


def seen(step: Step, column: int = 0) -> tuple[int, int]:
    """Episode and step that the observation shows."""
    return tuple(step.observation["clock"][column, 1:].tolist())


def starting_with(*ends: tuple[int, str]) -> int:
    """A seed whose first episodes are these."""
    return next(seed for seed in range(len(SCRIPT)) if (SCRIPT + SCRIPT)[seed : seed + len(ends)] == list(ends))


@pytest.mark.parametrize(("mode", "shown"), [("next-step", (0, 3)), ("same-step", (1, 0))])
def test_a_terminated_step_is_valid(mode, shown):
    *_, last = play(adapt(MODES[mode](1)), [starting_with((3, "terminated"))], 3)
    assert (seen(last), bool(last.first[0]), last.valid, last.discount) == (shown, mode == "same-step", True, 0)
    assert last.reward == earned(0, 3, 0)
    assert last.episode_length == 3
    assert last.episode_return == sum(earned(0, step, 0) for step in (1, 2, 3))


@pytest.mark.parametrize("mode", MODES)
def test_a_truncated_step_is_valid_and_followed_by_its_last_observation(mode):
    *_, last, reset, after = play(adapt(MODES[mode](1)), [starting_with((4, "truncated"))], 6)
    assert (seen(last), last.first, last.valid, last.discount) == ((0, 4), False, True, 1)
    assert last.episode_length == 4
    assert last.episode_return == sum(earned(0, step, 0) for step in (1, 2, 3, 4))
    assert (seen(reset), reset.first, reset.valid, reset.reward) == ((1, 0), True, False, 0)
    assert math.isnan(reset.episode_return[0])
    assert reset.episode_length == 0
    assert (seen(after), after.first, after.valid, after.reward) == ((1, 1), False, True, earned(1, 1, 0))


@pytest.mark.parametrize("mode", MODES)
def test_terminated_and_truncated_together_is_terminated(mode):
    _, last = play(adapt(MODES[mode](1)), [starting_with((2, "both"))], 2)
    assert (last.discount, last.valid, last.episode_length) == (0, True, 2)


@pytest.mark.parametrize("mode", MODES)
def test_episodes_of_one_step_in_a_row_each_count(mode):
    seed = starting_with((1, "truncated"), (1, "truncated"), (5, "terminated"))
    steps = play(adapt(MODES[mode](1)), [seed], 4)
    assert [(*seen(s), bool(s.first[0]), bool(s.valid[0]), int(s.episode_length[0])) for s in steps] == [
        (0, 1, False, True, 1),
        (1, 0, True, False, 0),
        (1, 1, False, True, 1),
        (2, 0, True, False, 0),
    ]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_a_reset_abandons_the_episode(mode, end):
    env = adapt(MODES[mode](1))
    seed = next(seed for seed, planned in enumerate(SCRIPT) if planned[0] >= 3 and planned[1] == end)
    length = SCRIPT[seed][0]
    for steps in (2, length):  # in the middle of an episode, and right after its end
        play(env, [seed], steps)
        again = play(env, [seed], length)
        assert all(step.valid[0] for step in again)
        assert again[-1].episode_length == length
        assert again[-1].episode_return == sum(earned(0, step, 0) for step in range(1, length + 1))


# ---- a same-step vector that waits for its truncated environments


@pytest.mark.parametrize("batched", [False, True], ids=["array of observations", "tree of arrays"])
def test_while_one_environment_is_reset_the_others_show_their_observation_once_more(batched):
    seeds = [starting_with((4, "truncated")), starting_with((5, "terminated"))]
    *_, last, reset, after = play(adapt(SameStepClock(2, batched)), seeds, 6)
    assert [seen(last, column) for column in (0, 1)] == [(0, 4), (0, 4)]
    assert last.valid.all()
    assert [seen(reset, column) for column in (0, 1)] == [(1, 0), (0, 4)]
    assert (reset.first.tolist(), reset.valid.tolist()) == ([True, False], [False, False])
    assert reset.reward.tolist() == [0, 0]
    assert reset.discount.all()
    assert np.isnan(reset.episode_return).all()
    assert [seen(after, column) for column in (0, 1)] == [(1, 1), (1, 0)]
    assert after.episode_length.tolist()[1] == 5, "a row of waiting is not a step of the episode"


def test_an_episode_that_opened_just_before_the_wait_opens_once_more():
    """So that the memory of a network does not see its first observation twice."""
    seeds = [starting_with((1, "truncated")), starting_with((1, "terminated"))]
    last, reset = play(adapt(SameStepClock(2)), seeds, 2)
    assert (last.first.tolist(), last.valid.tolist()) == ([False, True], [True, True])
    assert (reset.first.tolist(), reset.valid.tolist()) == ([True, True], [False, False])


@pytest.mark.parametrize(("count", "steps"), [(1, 200), (24, 300)])
def test_a_large_vector_does_not_wait_for_every_truncation(count, steps):
    """Episodes of about two steps, half of which are truncated, at different times."""
    answers = play(adapt(SameStepClock(count)), list(range(count)), steps)
    truncated = sum(int(((step.episode_length > 0) & step.discount).sum()) for step in answers)
    learnt = sum(int(((step.episode_length > 0) & step.discount & step.valid).sum()) for step in answers)
    waiting = np.mean([not step.valid.any() for step in answers])
    if count == 1:
        assert learnt == truncated
    else:
        assert truncated / 20 < learnt < truncated
        assert 0.05 < waiting < gymnasium_vector.MOST_WAITING + 0.03


class Forgetful(SameStepClock):
    """Does not say what its last observation was."""

    def step(self, actions: Any) -> Any:
        *answer, _ = super().step(actions)
        return *answer, {}


def test_a_same_step_vector_without_last_observations_is_refused_when_it_truncates():
    assert play(adapt(Forgetful(1)), [starting_with((3, "terminated"))], 3)[-1].valid
    with pytest.raises(ValueError, match=r"Forgetful resets in the same step but gives no info\['final_obs'\]"):
        play(adapt(Forgetful(1)), [starting_with((4, "truncated"))], 4)


# ---- what is refused


def test_an_environment_that_does_not_reset_itself_is_refused():
    env = gym.vector.SyncVectorEnv([Clock], autoreset_mode=AutoresetMode.DISABLED)
    with pytest.raises(UserError, match=r"autoreset_mode.*expected AutoresetMode\.NEXT_STEP"):
        adapt(env)


class WrongShape(gym.vector.VectorEnv):
    """Declares two numbers and gives one, which NumPy would broadcast."""

    metadata: ClassVar = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    single_observation_space, single_action_space = Box(-1, 1, (2,)), Discrete(2)

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        return np.zeros((self.num_envs, 1), np.float32), {}


def test_an_observation_of_the_wrong_shape_is_named():
    with pytest.raises(ValueError, match=r"shape \(1,\).*says \(2,\)"):
        adapt(WrongShape(3)).reset([1, 2, 3])
