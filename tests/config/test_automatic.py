import dataclasses

import pytest

from pronk.config import Config, decided, load_config, recorded, resolve
from pronk.config.automatic import chosen
from pronk.types import ActionSpec, ArraySpec, EnvSpec

VECTOR = EnvSpec(ArraySpec((3,), "float32"), ActionSpec((), (2,)))
GRID = EnvSpec(ArraySpec((7, 7, 3), "uint8"), ActionSpec((), (2,)))
IMAGE = EnvSpec({"picture": ArraySpec((84, 84, 4), "uint8"), "speed": ArraySpec((), "float32")}, ActionSpec((), (2,)))


def test_images_and_vectors_get_settings_of_their_own():
    vector, image = decided(Config(), VECTOR), decided(Config(), IMAGE)
    assert (vector.actors.unroll_length, vector.learner.passes) == (128, 8)
    assert (image.actors.unroll_length, image.learner.passes) == (64, 3)
    grid = decided(Config(), GRID)
    assert (grid.actors.unroll_length, grid.learner.passes) == (128, 3)
    assert vector.optimiser.learning_rate > image.optimiser.learning_rate
    assert vector.network.normalise is vector.network.popart is True


def test_what_was_decided_is_not_decided_again():
    for spec in (VECTOR, GRID, IMAGE):
        config = decided(Config(), spec)
        assert decided(config) == config
        assert resolve(config).learner.passes == config.learner.passes


def test_only_a_loss_that_bounds_the_policy_learns_many_times_from_a_batch():
    assert decided(load_config("CartPole-v1", ["loss=impala"]), VECTOR).learner.passes == "idle"


def test_what_the_user_says_stays():
    config = load_config("CartPole-v1", ["optimiser.learning_rate=0.1", "network.popart=false"])
    assert decided(config, VECTOR).optimiser.learning_rate == 0.1
    assert decided(config, VECTOR).network.popart is False


def test_a_batch_fits_any_number_of_environments_and_learners():
    for envs in range(1, 40):
        config = decided(Config().replace({"actors.envs": envs}), VECTOR)
        assert envs % config.learner.batch_size == 0 or config.learner.batch_size % envs == 0
    several = decided(Config().replace({"learners.count": 3}), VECTOR)
    assert several.learner.batch_size % 3 == 0


def test_teams_are_never_cut():
    team = dataclasses.replace(VECTOR, agents=5)
    config = decided(Config(), team)
    assert config.actors.envs == 35
    assert config.actors.envs % config.learner.batch_size == 0


def test_slow_environments_are_fewer_and_their_unrolls_shorter():
    def sizes(spec, **seconds):
        config = decided(Config(), dataclasses.replace(spec, **seconds))
        return config.actors.envs, config.actors.unroll_length, config.learner.batch_size

    assert sizes(VECTOR, step_seconds=1e-3) == (32, 128, 4)
    assert sizes(VECTOR, step_seconds=5e-3) == (4, 128, 4)
    assert sizes(VECTOR, step_seconds=0.02) == (4, 32, 4)
    assert sizes(IMAGE, reset_seconds=0.85) == (4, 64, 4)
    assert sizes(IMAGE, step_seconds=10.0) == (4, 32, 4)
    slow = dataclasses.replace(VECTOR, step_seconds=0.02)
    assert "vectors of a slow environment (0.02 s a step): " in chosen(decided(Config(), slow), slow)
    assert decided(Config().replace({"actors.envs": 64}), slow).actors.envs == 64


@pytest.mark.parametrize(("limit", "discount"), [(0, 0.99), (500, 0.99), (100, 0.99), (50, 0.98), (25, 0.96), (1, 0.9)])
def test_the_horizon_is_no_longer_than_a_time_limit(limit, discount):
    spec = dataclasses.replace(VECTOR, time_limit=limit)
    config = decided(Config(), spec)
    assert config.loss.discount == pytest.approx(discount)
    assert ("discount" in chosen(config, spec)) == (discount < 0.99)
    assert decided(Config().replace({"loss.discount": 0.97}), spec).loss.discount == 0.97


def test_environments_fit_a_batch_that_was_asked_for():
    assert resolve(decided(Config().replace({"learner.batch_size": 24}), VECTOR)).actors.envs == 24


def test_without_a_spec_everything_is_decided_too():
    resolved = resolve(Config())
    assert "auto" not in (
        resolved.learner.batch_size,
        resolved.actors.unroll_length,
        resolved.optimiser.learning_rate,
        resolved.network.normalise,
    )


def test_what_was_chosen_is_said_in_one_line():
    line = chosen(decided(Config(), IMAGE), IMAGE)
    assert line.startswith("settings for images: encoder picture (84x84x4 uint8): ")
    assert "envs 8, unroll_length 64, batch_size 4, learning_rate 0.0005, passes 3" in line
    assert "\n" not in line


def test_what_an_older_run_does_not_name_stays_off():
    tree = Config().model_dump()
    for key in ("normalise", "popart"):
        del tree["network"][key]
    del tree["env"]["wrappers"]
    config = recorded(tree)
    assert config.network.normalise is config.network.popart is False
    assert config.env.wrappers == []
    assert recorded(Config().model_dump()) == Config(), "what it names stays as it is"
