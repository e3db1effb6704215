"""The rule of envs/autoreset.py, step by step, in this process and in processes of their own."""

import math

import numpy as np
import pytest
from scripted import SCRIPT, Clock, earned

from pronk.envs.async_vector import AsyncVector
from pronk.envs.base import VectorEnv
from pronk.envs.sync_vector import SyncVector
from pronk.types import Step, map_tree

VECTORS = {"sync": lambda count: SyncVector(Clock, count), "async": lambda count: AsyncVector(Clock, count, 60.0)}


@pytest.fixture(params=VECTORS)
def clock(request):
    env = VECTORS[request.param](1)
    yield env
    env.close()


def play(env: VectorEnv, seed: int, steps: int) -> list[Step]:
    """The answers of a single environment to action 0, one after another."""
    env.reset([seed])
    return [Step(*(map_tree(np.copy, field) for field in env.step(np.zeros(1, np.int64)))) for _ in range(steps)]


def seen(step: Step) -> tuple[int, int]:
    """Episode and step that the observation shows."""
    return tuple(step.observation["clock"][0, 1:].tolist())


def starting_with(*ends: tuple[int, str]) -> int:
    """A seed whose first episodes are these."""
    return next(seed for seed in range(len(SCRIPT)) if (SCRIPT + SCRIPT)[seed : seed + len(ends)] == list(ends))


def total(episode: int, steps: int) -> float:
    return sum(earned(episode, step, 0) for step in range(1, steps + 1))


def test_after_a_terminated_step_the_next_row_opens_an_episode(clock):
    *_, last, after = play(clock, starting_with((3, "terminated")), 4)
    assert (seen(last), last.first, last.valid, last.discount) == ((1, 0), True, True, 0)
    assert (last.reward, last.episode_length, last.episode_return) == (earned(0, 3, 0), 3, total(0, 3))
    assert (after.reward, after.first, after.valid) == (earned(1, 1, 0), False, True)


def test_a_truncated_step_is_valid_and_followed_by_its_last_observation(clock):
    *_, last, reset, after = play(clock, starting_with((4, "truncated")), 6)
    assert (seen(last), last.first, last.valid, last.discount) == ((0, 4), False, True, 1)
    assert (last.reward, last.episode_length, last.episode_return) == (earned(0, 4, 0), 4, total(0, 4))
    assert (seen(reset), reset.first, reset.valid, reset.discount) == ((1, 0), True, False, 1)
    assert (reset.reward, reset.episode_length) == (0, 0)
    assert math.isnan(reset.episode_return[0])
    assert (seen(after), after.first, after.valid, after.reward) == ((1, 1), False, True, earned(1, 1, 0))


def test_terminated_and_truncated_together_is_terminated(clock):
    _, last = play(clock, starting_with((2, "both")), 2)
    assert (seen(last), last.first, last.valid, last.discount, last.episode_length) == ((1, 0), True, True, 0, 2)


def test_every_decision_counts_in_episodes_of_one_step(clock):
    steps = play(clock, starting_with((1, "truncated"), (1, "truncated"), (5, "terminated")), 4)
    assert [(*seen(s), bool(s.first[0]), bool(s.valid[0]), int(s.episode_length[0])) for s in steps] == [
        (0, 1, False, True, 1),
        (1, 0, True, False, 0),
        (1, 1, False, True, 1),
        (2, 0, True, False, 0),
    ]


@pytest.mark.parametrize(("end", "steps"), [("terminated", 2), ("terminated", 3), ("truncated", 4)])
def test_a_reset_abandons_the_episode(clock, end, steps):
    """In the middle of it, right after its end, and while its last observation is shown."""
    seed = next(seed for seed, fate in enumerate(SCRIPT) if fate[0] >= 3 and fate[1] == end)
    length = SCRIPT[seed][0]
    play(clock, seed, steps)
    again = play(clock, seed, length)
    assert all(step.valid[0] for step in again)
    assert (again[-1].episode_length, again[-1].episode_return) == (length, total(0, length))


def test_environments_do_not_disturb_one_another():
    """Several columns at once hold what each environment alone would give."""
    seeds, actions = [0, 1, 3, 5], np.random.default_rng(1).integers(3, size=(40, 4))
    alone = []
    for column, seed in enumerate(seeds):
        env = VECTORS["sync"](1)
        env.reset([seed])
        alone.append([float(env.step(action[column : column + 1]).reward[0]) for action in actions])
    for make in VECTORS.values():
        env = make(len(seeds))
        env.reset(seeds)
        np.testing.assert_array_equal(np.transpose([env.step(action).reward.copy() for action in actions]), alone)
        env.close()
