"""A file may hold other settings for machines without a GPU."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from pronk.config import Config, load_config, loading
from pronk.config.loading import WithoutGpu
from pronk.config.machine import has_gpu
from pronk.types import UserError

GAME = "env.game=boxing"


@pytest.fixture(params=[True, False], ids=["gpu", "no gpu"])
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(loading, "has_gpu", lambda: request.param)
    return request.param


def load(*overrides: str) -> tuple[Config, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        config = load_config("atari", [GAME, *overrides])
    return config, [str(warning.message) for warning in caught if warning.category is WithoutGpu]


def test_atari_takes_a_network_that_the_machine_can_train_and_says_so(machine: bool) -> None:
    config, notes = load()
    assert (config.network.torso, config.env.atari.size) == (("deep", 84) if machine else ("compact", 42))
    assert len(notes) == (0 if machine else 1)
    assert all("no GPU" in note and "network.torso=compact" in note for note in notes)


def test_the_configured_device_decides(machine: bool) -> None:
    assert load("learner.device=cpu")[0].network.torso == "compact"
    assert load("learner.device=cuda")[0].network.torso == "deep"


@pytest.mark.parametrize("name", ["ALE/Pong-v5", "ale_py:ALE/Pong-v5"])
def test_an_atari_id_has_frames_that_the_machine_can_learn_from(name: str, machine: bool) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        config = load_config(name)
        chosen = load_config(name, ["env.atari.size=84"])
        other = load_config("Acrobot-v1")
    assert config.env.atari.size == (84 if machine else 42)
    assert chosen.env.atari.size == other.env.atari.size == 84
    assert [name in str(each.message) for each in caught] == ([] if machine else [True, True])


def test_overrides_win(machine: bool) -> None:
    assert load("network.torso=nature", "env.atari.size=84")[0].network.torso == "nature"


def test_a_file_that_builds_on_it_can_change_both(tmp_path: Path, machine: bool) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("base: atari\nwithout_gpu: {network: {torso: shallow}}\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = load_config(mine, [GAME])
    assert (config.network.torso, config.env.atari.size) == (("deep", 84) if machine else ("shallow", 42))


def test_a_mistake_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "has_gpu", lambda: False)
    mine = tmp_path / "mine.yaml"
    mine.write_text("without_gpu: 3\n")
    with pytest.raises(UserError, match="without_gpu must hold sections"):
        load_config(mine)
    mine.write_text("without_gpu: {network: {torsoo: mlp}}\n")
    with pytest.raises(UserError, match=r"network\.torsoo"), pytest.warns(WithoutGpu):
        load_config(mine)


def test_hidden_gpus_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda path: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert has_gpu()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not has_gpu()
