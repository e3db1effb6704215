"""PettingZoo's parallel environments: agents are columns that share weights. `scripted:Relay` stands for them."""

import json
import sys

import numpy as np
import pytest
from gymnasium.spaces import Box
from processes import command_line
from scripted import Relay

from pronk.config import Config, load_config
from pronk.envs import make_env, probe_spec
from pronk.types import UserError


def relay(count: int, **env):
    return make_env(Config.model_validate({"env": {"id": "pettingzoo:scripted:Relay", **env}}), count)


def test_an_agent_that_is_done_waits_for_its_team():
    env = relay(3)
    env.reset([4])
    rows = [[np.copy(field) for field in env.step(np.array([1, 0, 1]))] for _ in range(8)]
    first, valid, discount, length = ([row[index].tolist() for row in rows] for index in (1, 4, 3, 6))
    assert [row[0] for row in valid] == [True] * 3 + [False] * 5
    assert [row[1] for row in valid] == [True] * 4 + [False] * 4
    assert [row[2] for row in valid] == [True] * 7 + [False]
    assert first == [[False] * 3] * 7 + [[True] * 3]
    assert [row[0] for row in discount] == [1, 1, 0, 1, 1, 1, 1, 1], "terminated"
    assert [row[2] for row in discount] == [1] * 8, "truncated"
    assert (length[2][0], length[3][1], length[6][2]) == (3, 4, 7)
    np.testing.assert_allclose([rows[2][5][0], rows[3][5][1], rows[6][5][2]], [4.5, 2.0, 10.5])
    assert rows[6][0][2][0] == 7, "the true last observation follows a truncated step"


def test_teams_are_never_cut():
    env = relay(4)
    assert (env.count, env.spec.agents) == (6, 3)
    assert probe_spec(Config.model_validate({"env": {"id": "pettingzoo:scripted:Relay"}})) == env.spec
    assert env.reset(list(range(6))).observation.shape == (6, 3)
    assert env.step(np.zeros(6, np.int64)).valid.all()


def test_wrappers_of_observations_apply_to_each_agent():
    env = relay(3, wrappers=[{"stack": 2}, {"clip": 1}])
    env.reset([1])
    env.step(np.zeros(3, np.int64))
    seen = env.step(np.zeros(3, np.int64)).observation
    assert seen.shape == (3, 2, 3)
    assert seen[:, :, 1].tolist() == [[0, 0], [1, 1], [1, 1]], "clipped numbers of the agents"
    with pytest.raises(UserError, match="skip cannot be applied to the agents"):
        relay(3, wrappers=[{"skip": 2}])


class Unlike(Relay):
    def observation_space(self, agent: str) -> Box:
        return Box(-1.0, 20.0, (3 + "abc".index(agent),), np.float32)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pettingzoo:teams:Unlike", "a and b have different observation_spaces, so they cannot share weights"),
        ("pettingzoo:teams:Nobody", "test_pettingzoo has no Nobody"),
        ("pettingzoo:teams", "test_pettingzoo has no parallel_env"),
        ("pettingzoo:scripted:Clock", "made a Clock without possible_agents"),
    ],
)
def test_mistakes(name, message, monkeypatch):
    monkeypatch.setitem(sys.modules, "teams", sys.modules[__name__])
    with pytest.raises((UserError, ValueError), match=message):
        make_env(Config.model_validate({"env": {"id": name}}), 1)


def test_a_team_trains_and_is_evaluated(tmp_path):
    run, small = tmp_path / "run", ["actors.count=1", "run.total_steps=600", "run.seed=1"]
    done = command_line("train", "pettingzoo:scripted:Relay", *small, "actors.envs=16", "--run-dir", run, "--quiet")
    assert done.code == 2
    assert "must be a multiple of 3, the number of agents of pettingzoo:scripted:Relay: try actors.envs=18" in done.err
    done = command_line("train", "pettingzoo:scripted:Relay", *small, "--run-dir", run, "--quiet")
    assert done.code == 0, done.err
    assert load_config(str(run / "config.yaml")).actors.envs == 33
    done = command_line("eval", run, "--episodes", "8", "--json")
    assert (done.code, json.loads(done.out)["episodes"]) == (0, 8), done.err
