"""`env.wrappers`: what each one does, what a wrong one says, and that every command uses the same chain."""

import json
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Text
from processes import command_line

from pronk.config import Config, EnvConfig, load_config
from pronk.envs import make_env, probe_spec
from pronk.envs.gymnasium_ids import maker_of
from pronk.types import ArraySpec, UserError

WRITING = Text(20, charset="abcdefghijklmnopqrstuvwxyz ")


class Scene(gym.Env):
    """Counts its steps: in every pixel of a picture, and in a vector."""

    def __init__(self, shape: tuple[int, ...] = (32, 48, 3), dtype: str = "uint8", plain: bool = False) -> None:
        high = 255 if dtype == "uint8" else 1.0
        picture = Box(0, high, tuple(shape), np.dtype(dtype).type)
        parts = {
            "picture": picture,
            "speed": Box(-4.0, 4.0, (2,)),
            "room": Discrete(3),
            "note": WRITING,
        }
        self.observation_space = picture if plain else Dict(parts)
        self.action_space = Discrete(2)
        self._plain = plain

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self._time = 0
        return self._look(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        self._time += 1
        return self._look(), 1.0, self._time == 30, False, {}

    def _look(self) -> Any:
        picture = self.observation_space if self._plain else self.observation_space["picture"]
        seen = np.full(picture.shape, self._time, picture.dtype)
        if self._plain:
            return seen
        return {"picture": seen, "speed": np.float32([self._time, -self._time]), "room": 1, "note": "go on"}


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.setitem(sys.modules, "scenes", sys.modules[__name__])


def one(*wrappers: Any, **kwargs: Any) -> gym.Env:
    return maker_of(EnvConfig(id="scenes:Scene", wrappers=list(wrappers), kwargs=kwargs))()


def start(env: gym.Env, steps: int = 0) -> Any:
    seen = env.reset(seed=1)[0]
    for _ in range(steps):
        seen = env.step(0)[0]
    assert seen in env.observation_space
    return seen


def test_resize_averages_and_leaves_the_rest():
    env = one({"resize": 8})
    seen = start(env, 3)
    assert (seen["picture"].shape, seen["picture"].dtype) == ((8, 8, 3), np.uint8)
    assert (seen["picture"] == 3).all()
    assert seen["speed"].tolist() == [3, -3]
    assert start(one({"resize": {"size": [8, 12]}}))["picture"].shape == (8, 12, 3)


@pytest.mark.parametrize(
    ("shape", "dtype", "small"),
    [
        ((32, 48, 1), "uint8", (16, 16, 1)),
        ((3, 32, 48), "uint8", (3, 16, 16)),
        ((2, 32, 48), "uint8", (2, 16, 16)),
        ((32, 48, 3), "float32", (16, 16, 3)),
        ((4, 32, 48, 3), "uint8", (4, 16, 16, 3)),
        ((32, 48), "uint8", (16, 16, 1)),
    ],
)
def test_resize_knows_every_kind_of_image(shape, dtype, small):
    env = one({"resize": 16}, shape=list(shape), dtype=dtype, plain=True)
    seen = start(env, 1)
    assert (seen.shape, seen.dtype) == (small, dtype)
    assert (seen == 1).all()


def test_resizing_is_the_mean_of_the_pixels():
    picture = np.random.default_rng(1).integers(0, 256, (32, 48, 3), np.uint8)
    from pronk.envs.pictures import picture_of_size

    small = picture_of_size(picture, 8, 8)
    slow = picture.reshape(8, 4, 8, 6, 3).mean((1, 3))
    np.testing.assert_allclose(small, slow, atol=1)


def test_grayscale_and_stack_make_the_usual_atari_observation():
    env = one("grayscale", {"resize": 16}, {"stack": 4}, plain=True)
    assert start(env).tolist() == np.zeros((4, 16, 16)).tolist()
    seen = start(env, 6)
    assert seen.shape == (4, 16, 16)
    assert seen[:, 0, 0].tolist() == [3, 4, 5, 6]


def test_a_stack_joins_numbers_and_shows_the_newest_text_and_label():
    seen = start(one({"stack": 2}), 4)
    assert seen["picture"].shape == (2, 32, 48, 3)
    assert seen["speed"].tolist() == [[3, -3], [4, -4]]
    assert (seen["room"], seen["note"]) == (1, "go on")


def test_skip_repeats_the_action_and_adds_the_rewards():
    env = one({"skip": 4})
    env.reset()
    seen, reward, *_ = env.step(0)
    assert (seen["speed"][0], reward) == (4, 4.0)
    total = reward
    while not (answer := env.step(0))[2]:
        total += answer[1]
    assert total + answer[1] == 30
    assert make_env(Config.model_validate({"env": config_of({"skip": 4})}), 1).spec.frames_per_step == 4


def config_of(*wrappers: Any) -> dict[str, Any]:
    return {"id": "scenes:Scene", "wrappers": list(wrappers)}


def test_keys_keeps_or_drops_entries():
    assert set(one({"keys": {"keep": ["speed", "note"]}}).observation_space) == {"speed", "note"}
    assert set(one({"keys": {"drop": "picture"}}).observation_space) == {"speed", "room", "note"}


def test_flatten_joins_everything_into_a_vector():
    seen = start(one({"keys": {"keep": ["speed", "room"]}}, "flatten"), 2)
    assert sorted(seen.tolist()) == [-2, 0, 0, 1, 2]


def test_normalise_goes_by_the_bounds_or_by_numbers():
    seen = start(one("normalise"), 2)
    assert seen["speed"].tolist() == [0.5, -0.5]
    np.testing.assert_allclose(seen["picture"], 2 / 127.5 - 1, rtol=1e-5)
    seen = start(one({"keys": {"keep": "speed"}}, {"normalise": {"mean": 1.0, "scale": 2.0}}), 3)
    assert seen["speed"].tolist() == [1.0, -2.0]


def test_clip_and_time_limit():
    assert start(one({"clip": 1.5}), 3)["speed"].tolist() == [1.5, -1.5]
    env = one({"time_limit": {"steps": 3}})
    env.reset()
    assert [env.step(0)[3] for _ in range(3)] == [False, False, True]


def test_any_gymnasium_wrapper_by_its_address():
    env = one({"gymnasium.wrappers:DelayObservation": {"delay": 2}}, plain=True)
    assert start(env, 5)[0, 0, 0] == 3


def test_large_images_are_resized_unless_asked_for_and_the_user_is_told():
    env = {"id": "scenes:Scene", "kwargs": {"shape": [240, 320, 3]}}
    spec = probe_spec(Config.model_validate({"env": env}))
    assert spec.observation["picture"] == ArraySpec((84, 84, 3), "uint8")
    assert spec.notes == ("picture: 240x320 pixels resized to 84x84 (env.wrappers=[] to see all)",)
    whole = probe_spec(Config.model_validate({"env": env | {"wrappers": []}}))
    assert whole.observation["picture"].shape == (240, 320, 3)
    also = probe_spec(Config.model_validate({"env": env | {"wrappers": [{"time_limit": 9}, "auto"]}}))
    assert also.observation["picture"].shape == (84, 84, 3)
    assert probe_spec(Config.model_validate({"env": {"id": "scenes:Scene"}})).notes == ()


def test_wrappers_can_be_written_in_three_ways():
    for text in ("grayscale", "[grayscale]", "[{grayscale: null}]"):
        assert load_config("CartPole-v1", [f"env.wrappers={text}"]).env.wrappers == [{"grayscale": None}]
    config = load_config("CartPole-v1", ["env.wrappers=[{resize: 84}, {keys: {drop: [a]}}]"])
    assert config.env.wrappers == [{"resize": 84}, {"keys": {"drop": ["a"]}}]
    assert Config.model_validate(config.model_dump()) == config


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        ("resise", "no env.wrappers: 'resise' (did you mean 'resize'?)"),
        ("resize", "env.wrappers: resize needs size; write {resize: {size: ...}}"),
        ({"resize": {"sise": 3}}, "env.wrappers: resize takes no 'sise' (did you mean 'size'?); it takes size"),
        ({"resize": "big"}, "env.wrappers: resize: size must be a number of pixels or [height, width], got 'big'"),
        ({"grayscale": 3}, "env.wrappers: grayscale got 3; it takes no arguments"),
        ({"stack": 0}, "env.wrappers: stack: size must be a whole number of at least 1, got 0"),
        ({"keys": {"keep": ["sped"]}}, "the observation has no 'sped' (did you mean 'speed'?)"),
        ("keys", "needs either keep or drop"),
        ("flatten", "cannot flatten text (note); drop it with keys"),
        ({"clip": {"low": 2, "high": 1}}, "low (2) must be below high (1)"),
        ("gymnasium.wrappers:ResizeObservatio", "no 'ResizeObservatio' (did you mean 'ResizeObservation'?)"),
        ("gymnasium.wrappers:DelayObservation", "env.wrappers: gymnasium.wrappers:DelayObservation needs delay"),
        ("builtins:repr", "made a str; expected a gymnasium.Wrapper"),
    ],
    ids=str,
)
def test_a_wrong_wrapper_is_told_in_one_line(wrapper, message):
    with pytest.raises(UserError) as caught:
        one(wrapper)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrappers_on_what_has_no_single_environments():
    with pytest.raises(UserError, match=r"env\.wrappers: grayscale cannot be applied to env\.id=catch"):
        make_env(Config.model_validate({"env": {"id": "catch", "wrappers": ["grayscale"]}}), 1)
    with pytest.raises(UserError, match=r"env\.wrappers: clip cannot be applied to env\.id=scripted:NextStepClock"):
        make_env(Config.model_validate({"env": {"id": "scripted:NextStepClock", "wrappers": [{"clip": 1}]}}), 1)


def test_an_id_with_a_vector_class_is_stepped_one_by_one_where_there_are_wrappers():
    env = make_env(Config.model_validate({"env": {"id": "CartPole-v1", "wrappers": [{"clip": 0.01}]}}), 2)
    assert np.abs(env.reset([1, 2]).observation).max() <= np.float32(0.01)
    env.close()


def test_an_ale_id_has_the_usual_preprocessing_and_the_emulator_that_it_stands_for():
    config = Config.model_validate({"env": {"id": "ALE/Pong-v5", "atari": {"size": 42}}})
    spec = probe_spec(config)
    assert (spec.observation, spec.frames_per_step) == (ArraySpec((4, 42, 42), "uint8"), 4)
    assert "ALE/Pong-v5: played as env.id=atari env.game=pong: gray frames of 42x42" in spec.notes[0]
    raw = probe_spec(config.replace({"env.wrappers": []}))
    assert raw.observation == ArraySpec((210, 160, 3), "uint8")


def test_every_command_uses_the_chain(tmp_path):
    run = tmp_path / "run"
    chain = "env.wrappers=[{clip: 0.5}, {stack: 2}, {time_limit: 20}]"
    small = ["actors.count=1", "actors.envs=4", "learner.batch_size=4", "run.total_steps=400"]
    done = command_line("train", "CartPole-v1", chain, *small, "--run-dir", run, "--quiet")
    assert done.code == 0, done.err
    done = command_line("eval", run, "--episodes", "3", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["mean_length"] <= 20
    done = command_line("watch", run, "--text", "--steps", "2")
    assert done.code == 0, done.err
    done = command_line("export", run, "--to", "torchscript", "--out", tmp_path / "policy.pt", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["inputs"]["observation"]["shape"] == [2, 4]


def test_the_command_line_tells_a_wrong_wrapper_and_writes_nothing(tmp_path):
    done = command_line("train", "CartPole-v1", "env.wrappers=[{stak: 2}]", "--run-dir", tmp_path / "run", "--quiet")
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "'stak' (did you mean 'stack'?)" in done.err
    done = command_line("train", "CartPole-v1", "env.wrappers=[3]", "--run-dir", tmp_path / "run", "--quiet")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "env.wrappers: expected a name, or {name: {argument: value}} such as {resize: 84}, got 3" in done.err
    assert not (tmp_path / "run").exists()
