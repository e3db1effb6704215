"""A start from recorded episodes."""

from __future__ import annotations

import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

from pronk.cloning import Episode, clone, read_minari, start_from_dataset, unrolls_of
from pronk.config import ResolvedConfig, load_config, resolve
from pronk.config.automatic import decided
from pronk.envs.base import probe_spec
from pronk.envs.spaces import action_decoder, action_encoder
from pronk.learner import Learner
from pronk.types import Failure, UserError

SETTINGS = ["transport=local", "network.hidden=[16]", "actors.unroll_length=8", "learner.batch_size=16"]


def made_learner(*more: str) -> tuple[Learner, ResolvedConfig]:
    config = load_config("CartPole-v1", [*SETTINGS, "actors.envs=16", "optimiser.learning_rate=0.01", *more])
    spec = probe_spec(config)
    resolved = resolve(decided(config, spec))
    return Learner(resolved, spec, torch.device("cpu")), resolved


def episode(random: np.random.Generator, length: int, terminated: bool = True) -> Episode:
    """Of a policy that goes where the pole leans."""
    observation = random.normal(size=(length + 1, 4)).astype(np.float32)
    action = (observation[:-1, 2] > 0).astype(np.int64)
    return Episode(observation, action, np.ones(length, np.float32), terminated)


def test_episodes_are_cut_into_unrolls() -> None:
    random = np.random.default_rng(1)
    one, two = episode(random, 11), episode(random, 8, terminated=False)
    data = unrolls_of([one, two], made_learner()[0], 8)
    assert data.valid.sum(0).tolist() == [8, 3, 8]
    np.testing.assert_array_equal(data.observation[:, 0], one.observation[:9])
    np.testing.assert_array_equal(data.observation[:4, 1], one.observation[8:])
    np.testing.assert_array_equal(data.observation[4:, 1], np.repeat(one.observation[-1:], 5, axis=0))
    assert data.discount.sum(0).tolist() == [8, 2, 8]  # the second ends with the terminated step, the third is cut off
    np.testing.assert_array_equal(data.action[:3, 1], one.action[8:])


def test_the_policy_learns_to_act_as_recorded_and_the_run_starts_at_update_zero() -> None:
    learner, config = made_learner()
    own = learner.loss
    random = np.random.default_rng(2)
    before, after = clone(learner, config, [episode(random, 40) for _ in range(30)])
    assert before == pytest.approx(np.log(2), abs=0.2)
    assert after < 0.25
    assert learner.version == 0
    assert learner.loss is own
    seen = torch.randn(1, 200, 4)
    output = learner.network(seen, torch.ones(1, 200, dtype=torch.bool), learner.network.initial_state(200))
    agrees = learner.network.distribution(output.policy, seen).mode()[0] == (seen[0, :, 2] > 0)
    assert agrees.float().mean() > 0.9


def test_progress_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pronk.cloning.PROGRESS_SECONDS", 0.0)
    learner, config = made_learner()
    said: list[str] = []
    clone(learner, config, [episode(np.random.default_rng(3), 400)], said.append)
    assert re.fullmatch(r"loss.clone: 0% of \d+ passes, -log probability of the actions 0\.\d+", said[0])
    assert said[-1].startswith("loss.clone: 100% of")


def test_a_dataset_that_cannot_be_learnt_from_is_a_failure_of_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, config = made_learner("loss.clone=broken-v0")
    broken = episode(np.random.default_rng(4), 40)
    broken.observation[3] = np.nan
    monkeypatch.setattr("pronk.cloning.read_minari", lambda *_: [broken])
    with pytest.raises(Failure, match=r"loss\.clone: broken-v0 cannot be learnt from: .* is nan"):
        start_from_dataset(learner, config, lambda line: None)


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Discrete(4, start=2),
        gym.spaces.MultiDiscrete([3, 4]),
        gym.spaces.Box(np.array([-2.0, 0.0]), np.array([2.0, 5.0]), dtype=np.float64),
        gym.spaces.Box(-np.inf, 3.0, (2,), np.float32),
    ],
    ids=str,
)
def test_actions_go_there_and_back(space: gym.Space) -> None:
    space.seed(1)
    actions = np.stack([np.clip(space.sample(), -1e3, 1e3) for _ in range(20)])
    spec, encode = action_encoder(space)
    same_spec, decode = action_decoder(space)
    assert spec == same_spec
    np.testing.assert_allclose(decode(encode(actions)), actions, atol=1e-4)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_dataset_that_is_not_there_or_of_another_environment_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minari = pytest.importorskip("minari", reason="needs pip install 'pronk[minari]'")
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    learner, _ = made_learner()
    with pytest.raises(UserError, match="cannot read the dataset nowhere-v0"):
        read_minari("nowhere-v0", learner.spec)
    spaces = {"observation_space": gym.spaces.Box(-1, 1, (3,)), "action_space": gym.spaces.Discrete(2)}
    ends = {"terminations": [True], "truncations": [False], "rewards": [1.0]}
    buffer = EpisodeBuffer(observations=list(np.zeros((2, 3), np.float32)), actions=[0], **ends)
    minari.create_dataset_from_buffers("other-v0", [buffer], **spaces)
    with pytest.raises(UserError, match="other-v0 has other observations than the environment"):
        read_minari("other-v0", learner.spec)
