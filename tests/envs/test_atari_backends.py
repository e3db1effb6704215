"""What both Atari backends have in common: how lives are counted, and, where EnvPool is installed, the very games."""

import sys

import gymnasium as gym
import numpy as np
import pytest

from pronk.config import Config, EnvConfig
from pronk.envs import make_env
from pronk.envs.atari import Lives, make
from pronk.envs.envpool_vector import options_of, task_of
from pronk.types import UserError

KNOBS = {"size": 84, "noops": 0}
PLAYING, OVER, CAPPED = (False, False), (True, False), (False, True)


class Scripted(gym.vector.VectorEnv):
    """One game that follows a script: (lives, (terminated, truncated)) of each step."""

    num_envs = 1

    def __init__(self, lives, fates):
        self._lives, self._fates = lives, iter(fates)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1), {"lives": np.array([self._lives])}

    def step(self, actions):
        self.pressed = [*getattr(self, "pressed", []), int(actions[0])]
        lives, (terminated, truncated) = next(self._fates)
        ends = np.array([terminated]), np.array([truncated])
        return np.zeros(1), np.zeros(1), *ends, {"lives": np.array([lives])}


def fates(lives, *steps, life_loss_ends=True):
    """(terminated, truncated, game over) of each step, as digits."""
    env = Lives(Scripted(lives, steps), life_loss_ends, fires=True)
    env.reset()
    answers = [env.step(np.zeros(1, int)) for _ in steps]
    return [
        "".join(str(int(array[0])) for array in (terminated, truncated, info["game_over"]))
        for _, _, terminated, truncated, info in answers
    ]


def test_a_lost_life_terminates_and_a_won_one_does_not():
    assert fates(3, (3, PLAYING), (2, PLAYING), (2, PLAYING), (3, PLAYING)) == ["000", "100", "000", "000"]


def test_a_life_can_be_lost_in_the_first_step():
    assert fates(3, (2, PLAYING)) == ["100"]


def test_the_last_life_ends_the_game_once():
    """Some games go on for a few frames with no life left."""
    assert fates(1, (0, PLAYING), (0, PLAYING), (0, OVER)) == ["000", "000", "101"]


def test_a_game_that_is_over_may_still_count_lives():
    assert fates(1, (1, PLAYING), (1, OVER), (1, PLAYING)) == ["000", "101", "000"]


def test_a_new_game_with_fewer_lives_is_no_loss():
    assert fates(3, (4, PLAYING), (4, CAPPED), (3, PLAYING), (2, PLAYING)) == ["000", "011", "000", "100"]


def test_a_life_lost_at_the_limit_counts_as_both():
    assert fates(3, (2, CAPPED), (3, PLAYING)) == ["111", "000"]


def test_lost_lives_need_not_end_anything():
    steps = [(2, PLAYING), (1, PLAYING), (0, OVER), (3, PLAYING), (2, CAPPED)]
    assert fates(3, *steps, life_loss_ends=False) == ["000", "000", "101", "000", "011"]


@pytest.mark.parametrize("life_loss_ends", [True, False])
def test_fire_is_pressed_at_the_start_of_each_further_life_only(life_loss_ends):
    steps = [(2, PLAYING), (2, PLAYING), (2, PLAYING), (1, CAPPED), (3, PLAYING), (2, PLAYING), (2, PLAYING)]
    for fires, pressed in ((True, [0, 1, 0, 0, 0, 0, 1]), (False, [0] * 7)):
        game = Scripted(3, steps)
        env = Lives(game, life_loss_ends, fires)
        env.reset()
        for _ in steps:
            env.step(np.zeros(1, int))
        assert game.pressed == pressed


def test_an_unknown_backend_is_a_users_mistake():
    with pytest.raises(ValueError, match="backend"):
        EnvConfig(id="atari", game="pong", atari={"backend": "stella"})


def test_a_missing_envpool_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    config = Config.model_validate({"env": {"id": "atari", "game": "pong", "atari": {"backend": "envpool"}}})
    with pytest.raises(UserError, match=r"pip install pronk\[envpool\]"):
        make_env(config, 1)


@pytest.mark.parametrize(("max_frames", "steps"), [(108_000, 27_000), (160, 40), (161, 41), (163, 41), (1, 1)])
def test_envpool_counts_the_limit_in_steps(max_frames, steps):
    atari = EnvConfig(atari={"max_frames": max_frames}).atari
    assert options_of(atari)["max_episode_steps"] == steps


def test_envpool_spells_games_its_own_way():
    assert [task_of(game) for game in ("pong", "ms_pacman", "up_n_down", "tic_tac_toe_3d")] == [
        *("Pong-v5", "MsPacman-v5", "UpNDown-v5", "TicTacToe3d-v5")
    ]


@pytest.fixture(scope="module")
def needs_both():
    pytest.importorskip("ale_py")
    pytest.importorskip("envpool", reason="the extra pronk[envpool] is not installed")


def both(game="breakout", count=2, **knobs):
    return [
        make(EnvConfig(id="atari", game=game, atari=KNOBS | knobs | {"backend": backend}), count)
        for backend in ("ale", "envpool")
    ]


def assert_same_games(envs, steps, random_action):
    """Everything but the opening stack, and pictures where a game ends, which ale-py does not take."""
    for env in envs:
        env.reset(list(range(env.count)))
    happened, since = {"first": 0, "over": 0, "rewards": 0, "pictures": 0}, np.zeros(envs[0].count, int)
    for index in range(steps):
        action = random_action(index)
        ale, pool = (env.step(action) for env in envs)
        for name in ("first", "reward", "discount", "valid", "episode_return", "episode_length"):
            np.testing.assert_array_equal(getattr(ale, name), getattr(pool, name), f"{name}, step {index}")
        since = np.where(ale.valid, since + 1, 0)
        stack = ale.observation.shape[1]
        compared = (since >= stack) & (ale.episode_length == 0)
        np.testing.assert_array_equal(ale.observation[compared], pool.observation[compared])
        for what, where in zip(happened, (ale.first, ale.episode_length, ale.reward, compared), strict=True):
            happened[what] += int(np.count_nonzero(where))
    for env in envs:
        env.close()
    assert happened["pictures"] > steps // 2
    return happened


def actions(choices, count=2, seed=0):
    random = np.random.default_rng(seed)
    return lambda index: random.integers(choices, size=count)


@pytest.mark.usefixtures("needs_both")
class TestBothBackends:
    def test_breakout_is_the_same_game(self):
        happened = assert_same_games(both(), 450, actions(4))
        assert happened["over"] >= 3
        assert happened["first"] >= 5 * happened["over"]
        assert happened["rewards"] >= 3

    def test_frame_limits_are_the_same(self):
        happened = assert_same_games(both(max_frames=198, size=10), 160, actions(4, seed=2))
        assert happened["over"] == 2 * (160 // 51)

    def test_a_life_lost_at_the_limit(self):
        """The first ball of breakout is lost in step 24 when nobody moves."""
        happened = assert_same_games(both(max_frames=96, size=10), 50, lambda _: np.ones(2, int))
        assert happened["over"] == 2 * 2

    def test_a_game_that_is_over_at_the_limit_is_not_truncated(self):
        """EnvPool itself says that it is."""
        fire = np.ones(1, int)
        ale, _ = both(count=1, size=10)
        ale.reset([0])
        steps = next(index for index in range(1, 300) if ale.step(fire).episode_length)
        envs = both(count=1, size=10, max_frames=4 * steps)
        assert assert_same_games(envs, steps + 1, lambda _: fire)["over"] == 1
        _, pool = both(count=1, size=10, max_frames=4 * steps)
        pool.reset([0])
        last = [pool.step(fire) for _ in range(steps)][-1]
        assert last.episode_length[0] == steps
        assert not last.discount[0]

    def test_knobs_are_the_same(self):
        knobs = {"frame_skip": 3, "stack": 2, "grayscale": False, "full_actions": True, "life_loss_ends": False}
        assert_same_games(both(size=21, **knobs), 60, actions(18))

    @pytest.mark.parametrize(
        "knobs", [{}, {"grayscale": False}, {"stack": 1, "size": 42, "full_actions": True, "frame_skip": 2}]
    )
    def test_specs_are_the_same(self, knobs):
        ale, pool = both(count=1, **knobs)
        assert ale.spec == pool.spec

    def test_envpool_follows_its_seeds(self):
        env = both(count=4, noops=30, size=10, sticky=0.25)[1]

        def shown(*seeds):
            pictures = [env.reset(list(seeds)).observation.copy()]
            pictures += [env.step(np.full(4, index % 4)).observation.copy() for index in range(20)]
            return [np.stack(pictures)[:, column].tobytes() for column in range(4)]

        once = shown(1, 2, 2**31 - 1, 1)
        assert once == shown(1, 2, 2**31 - 1, 1)
        assert len(set(once)) == 3
        assert once[:3] == shown(2**31 - 1, 2, 1, 1)[2::-1]
        env.close()

    def test_a_game_that_does_not_exist(self):
        with pytest.raises(UserError, match=r"env\.game.*brekout.*breakout"):
            make(EnvConfig(id="atari", game="brekout", atari={"backend": "envpool"}), 1)
