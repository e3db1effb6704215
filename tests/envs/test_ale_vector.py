"""Atari against a plain loop over one emulator that replays the same actions and seeds, step by step.

`PlainGame` is the oracle: table G.1's preprocessing written out slowly over `ALEInterface`, with nothing of ale-py's
vector environment and nothing of Pronk in it; it says what each `Step` should be.
"""

from collections import Counter

import gymnasium as gym
import numpy as np
import pytest

from pronk.config import EnvConfig
from pronk.envs import VectorEnv
from pronk.envs.ale_vector import make
from pronk.envs.atari import WITHOUT_FIRE
from pronk.types import UserError

ale_py = pytest.importorskip("ale_py")
ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)

SEEDS = [11, 5]
COUNT = len(SEEDS)
NOOP, FIRE = ale_py.Action.NOOP, ale_py.Action.FIRE


def atari(game="breakout", count=COUNT, **knobs) -> VectorEnv:
    return make(EnvConfig(id="atari", game=game, atari=knobs), count)


def small(game="breakout", count=COUNT, **knobs) -> VectorEnv:
    """Small frames and no random start, for tests that do not look at the pictures."""
    return atari(game, count, **{"size": 10, "noops": 0} | knobs)


def area_weights(pixels: int, size: int) -> np.ndarray:
    """[size, pixels]: how much of each old pixel is in each new one when a line is shrunk."""
    edges = np.arange(pixels)
    scale = pixels / size
    low = np.arange(size)[:, None] * scale
    return np.clip(np.minimum(edges + 1, low + scale) - np.maximum(edges, low), 0, None) / scale


ROWS, COLUMNS = area_weights(210, 84), area_weights(160, 84)


def shrunk(screen: np.ndarray) -> np.ndarray:
    return np.rint(ROWS @ screen.astype(np.float64) @ COLUMNS.T).astype(np.uint8)


class PlainGame:
    """One emulator. A step is 4 frames; what is seen is the larger of the last two, 84x84, gray, 4 of them stacked."""

    def __init__(self, game: str, seed: int, sticky: float, max_frames: int) -> None:
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", sticky)
        self.ale.setInt("random_seed", seed)
        self.ale.loadROM(ale_py.roms.get_rom_path(game))
        self.actions = self.ale.getMinimalActionSet()
        self.fires = FIRE in self.actions
        self.max_frames = max_frames
        self.happened = Counter()

    def begin(self, noops: int) -> dict:
        """A new game: press fire where there is such a button, then wait."""
        self.ale.reset_game()
        for action in [FIRE] * self.fires + [NOOP] * noops:
            self.ale.act(action)
        self.frames, self.earned, self.length, self.ended, self.lost = 0, 0.0, 0, False, False
        self.pooled = self.ale.getScreenGrayscale()
        self.stack = [np.zeros((84, 84), np.uint8)] * 3
        self.newest = [shrunk(self.pooled)]
        return self.answer(first=True, valid=False, reward=0, discount=True)

    def pressed(self, action: int) -> int:
        """What is pressed if the agent chooses this action: fire, at the start of a further life."""
        return self.actions.index(FIRE) if self.fires and self.lost else action

    def play(self, action: int) -> dict:
        """One step: what a `Step` should say of it."""
        before, reward, seen = self.ale.lives(), 0, []
        pressed = self.actions[self.pressed(action)]
        for _ in range(4):
            reward += self.ale.act(pressed)
            self.frames += 1
            seen.append(self.ale.getScreenGrayscale())
            over, capped = self.ale.game_over(), self.frames >= self.max_frames
            if over or capped:
                break
        self.lost = lost = 0 < self.ale.lives() < before
        self.earned, self.length, self.ended = self.earned + reward, self.length + 1, over or capped
        self.happened.update(lost=lost, over=over, capped=capped and not over, points=reward != 0, many=abs(reward) > 1)
        self.see(seen)
        return self.answer(first=lost and not self.ended, valid=True, reward=reward, discount=not (lost or over))

    def answer(self, **fate) -> dict:
        episode = (self.earned, self.length) if self.ended else (np.nan, 0)
        return fate | {"episode_return": episode[0], "episode_length": episode[1]}

    def see(self, seen: list[np.ndarray]) -> None:
        """The newest picture: two frames pooled. ale-py does not look at the frame that ends a game: there the picture
        of the step before may stay, pooled with the one frame of this step that was looked at."""
        stale = np.maximum(self.pooled, seen[2]) if len(seen) == 4 else self.pooled
        self.pooled = np.maximum.reduce(seen[-2:])
        self.newest = [shrunk(self.pooled)] + [shrunk(stale)] * self.ended

    def assert_seen(self, observation: np.ndarray, where: str) -> None:
        """The stack, oldest first; then the newest picture joins it."""
        *older, newest = observation
        assert all(close(ours, theirs) for ours, theirs in zip(self.stack, older, strict=True)), f"{where}: older"
        fitting = [picture for picture in self.newest if close(picture, newest)]
        assert fitting, f"{where}: newest"
        self.stack = [*self.stack[1:], fitting[0]]


def close(ours: np.ndarray, theirs: np.ndarray) -> bool:
    """A few pixels may be a gray level off, where their mean lies between two."""
    difference = np.abs(ours.astype(int) - theirs)
    return difference.max() <= 1 and np.count_nonzero(difference) <= 10


def replay(game: str, steps: int, fire: float, noops: int = 0, sticky: float = 0.0, max_frames: int = 108_000):
    """Play Pronk's games and plain ones side by side, compare everything, and count what happened."""
    knobs = {"noops": noops, "sticky": sticky, "max_frames": max_frames}
    env, counting = atari(game, **knobs), counting_frames(game, **knobs)
    plain = [PlainGame(game, seed, sticky, max_frames) for seed in SEEDS]
    random = np.random.default_rng(0)
    answer, info = env.reset(SEEDS), counting.reset(seed=np.array(SEEDS))[1]
    for column, one in enumerate(plain):
        one.begin(idle(info, column, one, noops))
        one.assert_seen(answer.observation[column], "reset")
    for index in range(steps):
        action = random.integers(len(plain[0].actions), size=COUNT)
        action[random.random(COUNT) < fire] = list(plain[0].actions).index(FIRE)
        pressed = np.array([one.pressed(each) for one, each in zip(plain, action.tolist(), strict=True)])
        answer, info = env.step(action), counting.step(pressed)[4]
        for column, one in enumerate(plain):
            where = f"step {index}, environment {column}"
            wanted = one.begin(idle(info, column, one, noops)) if one.ended else one.play(int(action[column]))
            one.assert_seen(answer.observation[column], where)
            np.testing.assert_equal({name: getattr(answer, name)[column] for name in wanted}, wanted, where)
            assert info["episode_frame_number"][column] == one.ale.getEpisodeFrameNumber(), where
            assert info["lives"][column] == one.ale.lives(), where
    env.close()
    counting.close()
    return sum((one.happened for one in plain), Counter())


def counting_frames(game: str, noops: int, sticky: float, max_frames: int):
    """ale-py's own vector environment with the same games: only it says how many frames a game has had, and so how
    many idle ones it began with."""
    from ale_py.vector_env import AtariVectorEnv

    return AtariVectorEnv(
        game,
        COUNT,
        reward_clipping=False,
        max_num_frames_per_episode=max_frames,
        repeat_action_probability=sticky,
        noop_max=noops,
    )


def idle(info: dict, column: int, game: PlainGame, noops: int) -> int:
    """How many no-ops opened a game."""
    waited = int(info["episode_frame_number"][column]) - game.fires
    assert 0 <= waited <= noops
    return waited


@pytest.mark.parametrize("knobs", [{"noops": 0}, {"noops": 30}, {"noops": 0, "sticky": 0.25}], ids=str)
def test_breakout_is_what_the_plain_loop_plays(knobs):
    happened = replay("breakout", 500, fire=0.3, **knobs)
    assert happened["over"] >= 3
    assert happened["lost"] >= 4 * happened["over"]
    assert happened["points"] >= 5


def test_pong_is_what_the_plain_loop_plays():
    happened = replay("pong", 200, fire=0.1, noops=30)
    assert happened["points"] >= 2 * COUNT
    assert not happened["lost"]


def test_seaquest_is_what_the_plain_loop_plays():
    happened = replay("seaquest", 250, fire=0.3, noops=30)
    assert happened["many"] >= COUNT, "rewards beyond 1 show that nobody clipped them"
    assert happened["lost"] >= COUNT


@pytest.mark.parametrize("max_frames", [200, 198])
def test_the_frame_limit_is_where_the_plain_loop_has_it(max_frames):
    happened = replay("breakout", 110, fire=0.3, noops=0, max_frames=max_frames)
    assert happened["capped"] >= 2 * COUNT
    assert happened["lost"] >= COUNT


def keep_firing(env: VectorEnv, steps: int) -> list:
    """Without moving: the ball is missed every time it comes down."""
    env.reset(SEEDS[: env.count])
    return [env.step(np.ones(env.count, np.int64)) for _ in range(steps)]


def test_a_truncated_game_counts_to_its_end_and_bootstraps():
    *_, last, after = keep_firing(small(max_frames=40), 11)
    assert last.discount.all()
    assert last.valid.all()
    assert not last.first.any()
    assert last.episode_length.tolist() == [10] * COUNT
    assert last.episode_return.tolist() == [0.0] * COUNT
    assert after.first.all()
    assert not after.valid.any()
    assert np.isnan(after.episode_return).all()


def first_lost_life() -> int:
    """How many steps the first ball lasts."""
    return next(index for index, step in enumerate(keep_firing(small(count=1), 60), start=1) if not step.discount[0])


def test_a_life_lost_in_the_very_step_of_the_frame_limit_ends_the_game_too():
    steps = first_lost_life()
    *_, last, after = keep_firing(small(count=1, max_frames=4 * steps), steps + 1)
    assert not last.discount[0]
    assert last.valid[0]
    assert last.episode_length[0] == steps
    assert last.episode_return[0] == 0.0
    assert after.first[0]
    assert not after.valid[0]


def test_a_game_can_be_over_with_lives_left():
    """Adventure counts one life, always, also when a dragon has eaten the player."""
    env, walk = small("adventure", count=1, fire_reset=False), np.random.default_rng(1)
    env.reset([1])
    for _ in range(450):
        direction = walk.integers(18, size=1)
        for _ in range(10):
            step = env.step(direction)
            if not step.discount[0]:
                break
        if not step.discount[0]:
            break
    assert not step.discount[0], "nobody was eaten"
    assert step.episode_length[0] > 0
    assert not step.first[0]
    assert not env.step(direction).valid[0]


def test_lost_lives_can_be_left_to_the_agent():
    steps = 300
    ending, going_on = (keep_firing(small(life_loss_ends=ends), steps) for ends in (True, False))
    lost = sum(int((~step.discount).sum()) for step in ending)
    over = sum(int((step.episode_length > 0).sum()) for step in ending)
    assert over >= 2 * COUNT
    assert lost >= 5 * over
    assert sum(int((~step.discount).sum()) for step in going_on) == over
    for ours, theirs in zip(ending, going_on, strict=True):
        for name in ("observation", "reward", "valid", "episode_return", "episode_length"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        np.testing.assert_array_equal(theirs.discount, theirs.episode_length == 0)
        np.testing.assert_array_equal(theirs.first, ~theirs.valid)


def shown(env: VectorEnv, *seeds: int) -> list[bytes]:
    """What each environment shows when all of them are played alike."""
    pictures = [env.reset(list(seeds)).observation.copy()]
    for action in np.random.default_rng(1).integers(4, size=30):
        pictures.append(env.step(np.full(env.count, action)).observation.copy())
    return [np.stack(pictures)[:, column].tobytes() for column in range(env.count)]


def test_sticky_actions_follow_the_seed():
    env = small(count=3, sticky=0.25)
    sticky = shown(env, 1, 2, 1)
    assert sticky == shown(env, 1, 2, 1)
    assert sticky[0] == sticky[2]
    assert sticky[0] != sticky[1]
    unstuck = shown(small(count=3), 1, 2, 1)
    assert unstuck[0] == unstuck[1] != sticky[0]


def test_every_environment_has_a_start_of_its_own():
    env = small(count=5, noops=30)
    starts = shown(env, 1, 2, 3, 4, 5)
    assert len(set(starts)) >= 3  # two may draw the same number of no-ops
    assert starts == shown(env, 1, 2, 3, 4, 5)
    assert starts[::-1] == shown(env, 5, 4, 3, 2, 1)


def test_all_18_actions_on_request():
    few, all_of_them = small(), small(full_actions=True)
    assert few.spec.action.choices == (4,)
    assert all_of_them.spec.action.choices == (18,)
    all_of_them.reset(SEEDS)
    assert all_of_them.step(np.array([9, 17])).valid.all()


@pytest.mark.parametrize("frame_skip", [1, 4, 6])
def test_steps_know_how_many_frames_they_are(frame_skip):
    env = small(frame_skip=frame_skip, max_frames=60)
    assert env.spec.frames_per_step == frame_skip
    lengths = [step.episode_length.tolist() for step in keep_firing(env, 60 // frame_skip)]
    assert lengths[-1] == [60 // frame_skip] * COUNT
    assert not np.any(lengths[:-1])


def test_knobs_shape_the_observation():
    assert small().spec.observation.shape == (4, 10, 10)
    assert small(stack=2, size=42).spec.observation.shape == (2, 42, 42)
    assert small(grayscale=False).spec.observation.shape == (4, 10, 10, 3)
    assert small().spec.observation.dtype == "uint8"


def ends_within(steps: int, **knobs) -> tuple[int, int]:
    """Lives lost and games over in so many steps of Breakout without any action."""
    env = small(count=1, **knobs)
    env.reset([1])
    played = [env.step(np.zeros(1, np.int64)) for _ in range(steps)]
    env.close()
    return sum(not step.discount[0] for step in played), sum(step.episode_length[0] > 0 for step in played)


def test_without_fire_the_ball_waits():
    assert ends_within(200, fire_reset=False) == (0, 0)


def test_a_policy_that_never_fires_plays_whole_games():
    lost, over = ends_within(400)
    assert over >= 2
    assert lost >= 5 * over


def test_the_games_without_a_fire_button_are_known():
    gym.register_envs(ale_py)
    for game in sorted({spec.kwargs["game"] for name, spec in gym.registry.items() if name.startswith("ALE/")}):
        emulator = ale_py.ALEInterface()
        emulator.loadROM(ale_py.roms.get_rom_path(game))
        buttons = emulator.getMinimalActionSet()
        assert (FIRE in buttons) is (game not in WITHOUT_FIRE), game
        assert emulator.lives() < 2 or FIRE not in buttons or buttons.index(FIRE) == 1, game


@pytest.mark.parametrize(("game", "meant"), [("brekout", "breakout"), ("spaceinvaders", "space_invaders")])
def test_a_game_that_does_not_exist_is_a_users_mistake(game, meant):
    with pytest.raises(UserError, match=rf"env\.game.*{game}.*{meant}"):
        small(game)


def test_no_game_is_a_users_mistake():
    with pytest.raises(UserError, match=r"env\.game"):
        small(None)
