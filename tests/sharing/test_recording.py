"""Episodes as a dataset, read back by Minari itself."""

from __future__ import annotations

import os
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from pronk.config import load_config
from pronk.sharing.recording import columns, record
from pronk.starting import train
from pronk.types import UserError

SHORT = ["transport=local", "run.total_steps=640", "network.hidden=[16]"]


def test_lists_of_observations_become_minaris_form() -> None:
    seen = [{"a": 1, "b": (2, 3)}, {"a": 4, "b": (5, 6)}]
    assert columns(seen) == {"a": [1, 4], "b": ([2, 5], [3, 6])}


def test_what_cannot_be_recorded_is_said() -> None:
    with pytest.raises(UserError, match=r"no format 'minary' \(did you mean 'minari'\?\)"):
        record("last", "minary")
    with pytest.raises(UserError, match="is no name of a dataset"):
        record("last", name="../x")
    with pytest.raises(UserError, match="at least 1"):
        record("last", episodes=0)


def test_minari_reads_the_episodes_that_were_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = pytest.importorskip("minari", reason="needs pip install 'pronk[minari]'")
    train(load_config("CartPole-v1", SHORT), run_dir=tmp_path / "run")
    done = record(tmp_path / "run", episodes=3, folder=tmp_path / "data", deterministic=True)
    assert "MINARI_DATASETS_PATH" not in os.environ
    again = record(tmp_path / "run", episodes=1, folder=tmp_path / "data", deterministic=True)
    assert (done.name, again.name) == ("pronk/cartpole-v0", "pronk/cartpole-v1")
    with pytest.raises(UserError, match="there is a dataset pronk/cartpole-v1 already"):
        record(tmp_path / "run", name="pronk/cartpole-v1", folder=tmp_path / "data")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "data"))
    dataset = minari.load_dataset(done.name)
    assert [float(episode.rewards.sum()) for episode in dataset] == done.returns
    assert dataset.total_steps == done.steps
    env, first = gym.make("CartPole-v1"), dataset[0]  # the same actions lead to the same observations
    seen = [env.reset(seed=1)[0]] + [env.step(action)[0] for action in first.actions]
    np.testing.assert_array_equal(np.array(seen), first.observations)
