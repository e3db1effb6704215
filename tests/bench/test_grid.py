"""The settings that are tried fit the batch, and change nothing else."""

from __future__ import annotations

import pytest

from pronk.bench.grid import KEYS, Setting, grid, least_changes, rest_of, setting_of
from pronk.config import decided, load_config, resolve
from pronk.envs.probing import spec_of
from pronk.types import UserError


def resolved_with(source, overrides, setting):
    config = load_config(source, overrides)
    return resolve(decided(config.replace(setting.changes), spec_of(config, print)))


@pytest.mark.parametrize(
    ("source", "overrides"), [("cartpole", []), ("catch", []), ("CartPole-v1", []), ("catch", ["learner.batch_size=4"])]
)
@pytest.mark.parametrize("cores", [1, 2, 64])
def test_every_setting_learns_from_the_same_batches(source, overrides, cores):
    config = load_config(source, overrides)
    spec = spec_of(config, print)
    settings = grid(config, spec, cores)
    base = resolve(decided(config, spec))
    assert settings[0] == setting_of(base)
    assert len(settings) == len(set(settings)) > 3
    assert max(setting.actors for setting in settings) >= cores
    assert {setting.envs for setting in settings} > {settings[0].envs}
    for setting in settings:
        changed = resolved_with(source, overrides, setting)
        assert setting_of(changed) == setting
        assert rest_of(changed) == rest_of(base)
        assert changed.learner.batch_size == base.learner.batch_size
        assert changed.learner.passes == base.learner.passes
        assert changed.actors.unroll_length == base.actors.unroll_length


def test_what_the_user_has_set_stays():
    config = load_config("catch", ["actors.count=3", "actors.envs=16"])
    settings = grid(config, spec_of(config, print), 2, fixed=["actors.count", "actors.envs"])
    assert {(setting.actors, setting.envs) for setting in settings} == {(3, 16)}
    assert {setting.slots for setting in settings} == {1, 2}


@pytest.mark.parametrize(
    ("overrides", "word"),
    [
        (["transport=local"], "transport=shared_memory"),
        (["learners=2"], "learners.count=2"),
        (["cluster=ray"], "cluster=ray"),
        (["gateway.address=127.0.0.1:0"], "gateway.address"),
    ],
)
def test_what_cannot_be_tuned_is_said(overrides, word):
    config = load_config("catch", overrides)
    with pytest.raises(UserError, match=word):
        grid(config, spec_of(config, print), 2)


def test_nothing_left_to_tune_is_said():
    config = load_config("catch")
    with pytest.raises(UserError, match="nothing to tune"):
        grid(config, spec_of(config, print), 2, fixed=KEYS)


def test_only_what_differs_is_written():
    config = load_config("cartpole")
    spec = spec_of(config, print)
    default = grid(config, spec, 2)[0]
    assert least_changes(config, spec, default) == {}
    changed = default._replace(envs=default.envs * 2)
    assert least_changes(config, spec, changed) == {"actors.envs": default.envs * 2}


def test_what_follows_from_a_change_is_written_too():
    """learner.threads=auto depends on actors.count: if it would become another number, it has to be written."""
    config = load_config("catch")
    spec = spec_of(config, print)
    for count in (1, 2):
        for threads in (1, 2):
            setting = Setting(count, 16, 2, threads)
            loaded = config.replace(least_changes(config, spec, setting))
            assert setting_of(resolve(decided(loaded, spec))) == setting
