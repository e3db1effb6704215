"""Small networks without torch: which they are, and that an actor's process never imports it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from processes import Training

from pronk.config import Config, resolve
from pronk.networks import make_network
from pronk.networks.actor_critic import ActorCritic
from pronk.policies.numpy_mlp import small_mlp
from pronk.policies.numpy_sampler import MASKED, choose, log_times
from pronk.types import ActionSpec, ArraySpec, EnvSpec

VECTOR = ArraySpec((4,), "float32")
CHOICE = ActionSpec((), (3,))


def network_of(observation=VECTOR, **settings):
    changes = {name.replace("__", "."): value for name, value in settings.items()}
    return make_network(EnvSpec(observation, CHOICE), resolve(Config().replace(changes)).network)


@pytest.mark.parametrize(
    ("envs", "network"),
    {
        "sixty-four layers of sixty-four": (64, network_of(network__hidden=[64, 64])),
        "no hidden layer": (64, network_of(network__hidden=[])),
        "not normalised": (64, network_of(network__normalise=False)),
    }.values(),
)
def test_small_networks_of_vectors_are_computed_in_numpy(envs, network):
    assert small_mlp(network, envs)


class Zeros:
    """The draw of an exponential that comes once in many millions."""

    def standard_exponential(self, shape, dtype):
        return np.zeros(shape, dtype)


@pytest.mark.filterwarnings("error")
def test_a_time_of_zero_does_not_let_a_forbidden_choice_win():
    logits = np.array([[MASKED, 0.0, MASKED]], np.float32)
    race = np.concatenate([log_times(Zeros(), (1, 1)), np.zeros((1, 2), np.float32)], -1)
    action, log_prob = choose(logits, race)
    assert (action.tolist(), log_prob.tolist()) == ([1], [0.0])


class Changed(ActorCritic):
    """A user's own, which may compute anything."""


@pytest.mark.parametrize(
    ("envs", "network"),
    {
        "too many environments": (65, network_of(network__hidden=[64, 64])),
        "too wide": (32, network_of(network__hidden=[128, 128])),
        "a core": (1, network_of(network__core="lstm")),
        "layer norm": (1, network_of(network__layer_norm=True)),
        "an image": (1, network_of(ArraySpec((84, 84, 4), "uint8"))),
        "text": (1, network_of({"mission": ArraySpec((8,), "int32", words=100), "speed": VECTOR})),
        "a class of the user's": (1, Changed(EnvSpec(VECTOR, CHOICE), Config().network)),
    }.values(),
)
def test_other_networks_are_computed_in_torch(envs, network):
    assert small_mlp(network, envs) is None


@pytest.mark.parametrize("transport", ["shared_memory", "grpc"])
def test_an_actor_with_a_small_network_never_imports_torch(tmp_path: Path, transport: str) -> None:
    settings = (f"transport={transport}", "actors.count=1", "run.stop_return=null", "run.total_steps=1e9")
    with Training(tmp_path / "run", "cartpole", *settings, fresh=True) as training:
        training.wait_for_updates()
        used = {process.pid: libraries_of(process.pid) for process in training.descendants()}
        assert "libtorch" in libraries_of(training.pid)
    assert used
    assert not [pid for pid, libraries in used.items() if "libtorch" in libraries]


def libraries_of(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text() if os.path.exists(f"/proc/{pid}/maps") else ""
