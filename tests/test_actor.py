import contextlib
import dataclasses
import math
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from scripted import Clock, TwoTasks

from pronk.actor import Actor, make_actor, specs_for
from pronk.config import Config, ResolvedConfig, resolve
from pronk.envs import make_env, probe_spec
from pronk.envs.last_inputs import LastInputs
from pronk.layout import UnrollLayout
from pronk.learner import Learner
from pronk.networks import make_network
from pronk.policies.torch_policy import TorchPolicy
from pronk.transport.local import LocalTransport
from pronk.transport.shared_memory import SharedMemoryActorPort, SharedMemoryTransport
from pronk.types import UserError

ENVS, LENGTH = 2, 4


def config_for(env: str, **kwargs: Any) -> ResolvedConfig:
    sizes = {"actors.envs": ENVS, "actors.unroll_length": LENGTH, "learner.batch_size": ENVS}
    return resolve(Config().replace({"env.id": env, "env.kwargs": kwargs, "network.hidden": [8], **sizes}))


@contextlib.contextmanager
def acting(config: ResolvedConfig) -> Iterator[tuple[Actor, LocalTransport, Learner]]:
    """An actor that plays whenever the learner waits."""
    learner = Learner(config, probe_spec(config), torch.device("cpu"))
    transport = LocalTransport(UnrollLayout(specs_for(config, learner.network.spec, learner.network.state_spec)))
    transport.publish(learner.parameters())
    with make_actor(config, lambda *_: transport, 0, 0, 0) as actor:
        transport.while_waiting = actor.advance
        yield actor, transport, learner


def test_one_advance_sends_one_unroll():
    with acting(config_for("scripted:Clock")) as (actor, transport, _):
        for sent in (1, 2, 3):
            actor.advance()
            assert transport.waiting == sent


def test_each_column_says_which_task_its_environment_plays():
    config = config_for("scripted:Clock").replace({"network.last_action": True})
    env = LastInputs(TwoTasks(make_env(config_for("scripted:Clock"), ENVS)), action=True, reward=False)
    learner = Learner(config, env.spec, torch.device("cpu"))
    transport = LocalTransport(UnrollLayout(specs_for(config, env.spec, learner.network.state_spec)))
    transport.publish(learner.parameters())
    policy = TorchPolicy(make_network(env.spec, config.network), ENVS, seed=1)
    Actor(env, policy, transport, [1, 2]).advance()
    with transport.unrolls(1) as [unroll]:
        assert [env.spec.tasks[task] for task in unroll.task] == ["even", "odd"]
    env.close()


def test_parameters_change_only_between_unrolls():
    with acting(config_for("scripted:Clock")) as (_, transport, learner):
        for version in (0, 4, 9):
            learner.version = version
            transport.publish(learner.parameters())
            with transport.unrolls(1) as [unroll]:
                assert unroll.version.tolist() == [version] * ENVS


def test_the_weights_that_were_published_are_the_ones_that_act():
    with acting(config_for("scripted:Clock")) as (_, transport, learner):
        for favourite in (0, 2, 1):
            with torch.no_grad():
                for weight in learner.network.parameters():
                    weight.zero_()
                dict(learner.network.named_parameters())["_policy_head._linear.bias"][favourite] = 50.0
            learner.version += 1
            transport.publish(learner.parameters())
            with transport.unrolls(1) as [unroll]:
                assert (unroll.action == favourite).all()
                np.testing.assert_allclose(unroll.log_prob, 0.0, atol=1e-6)


@pytest.mark.parametrize("where", ["reward", "a", "b"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_a_number_is_found_at_once_and_not_sent(where, value):
    with acting(config_for("scripted:Broken", where=where, value=value)) as (actor, transport, _):
        name = where if where == "reward" else f"observation/{where}"
        with pytest.raises(FloatingPointError, match=f"environment 0 returned {value} in its {name}"):
            actor.advance()
        assert transport.waiting == 0


@pytest.mark.parametrize("choice", [0, 1])
@pytest.mark.parametrize("step", [0, 2])
def test_a_mask_that_forbids_everything_is_an_error_where_an_action_is_needed(step, choice):
    with acting(config_for("masked:NextStepStuck", step=step, choice=choice)) as (actor, transport, _):
        with pytest.raises(ValueError, match="environment 1 allows no action: its action_mask is all zeros"):
            actor.advance()
        assert transport.waiting == 0


def test_the_mask_of_an_episodes_last_observation_does_not_matter():
    with acting(config_for("masked:NextStepStuck")) as (actor, transport, _):
        for _ in range(4):
            actor.advance()
        with transport.unrolls(4) as unrolls:
            forbidden = [~unroll.observation["action_mask"][:-1].any(-1) for unroll in unrolls]
            assert np.any(forbidden), "such observations are in the unrolls"
            assert not any((where & unroll.valid).any() for where, unroll in zip(forbidden, unrolls, strict=True))


@pytest.fixture
def newly_alive() -> Callable[[], int]:
    before = set(Clock.alive)
    return lambda: len(Clock.alive - before)


def test_environments_are_closed_when_the_actor_ends(newly_alive):
    with acting(config_for("scripted:Clock")):
        assert newly_alive() == ENVS
    assert newly_alive() == 0


def test_environments_are_closed_when_the_actor_fails_or_cannot_be_made(newly_alive):
    config = config_for("scripted:Clock")
    with pytest.raises(ZeroDivisionError), acting(config):
        raise ZeroDivisionError
    assert newly_alive() == 0
    wrong = config.replace({"network.name": "no_such_module:Network"})
    with pytest.raises(UserError), make_actor(wrong, lambda *_: pytest.fail("too far"), 0, 0, 0):
        pytest.fail("too far")
    assert newly_alive() == 0


def test_an_actor_runs_until_the_learner_is_gone(newly_alive):
    config = config_for("scripted:Clock")
    learner = Learner(config, probe_spec(config), torch.device("cpu"))
    layout = UnrollLayout(specs_for(config, learner.network.spec, learner.network.state_spec))

    def act() -> None:
        with make_actor(config, lambda *made: SharedMemoryActorPort(ticket, *made), 0, 0, 0) as actor:
            actor.run()

    with SharedMemoryTransport(layout, learner.parameters().block.nbytes, actors=1, slots=2) as transport:
        transport.publish(learner.parameters())
        ticket, inherited = transport.connect(0)
        with inherited:
            ticket = dataclasses.replace(ticket, socket=os.dup(ticket.socket))
        thread = threading.Thread(target=act, daemon=True)
        thread.start()
        for _ in range(7):
            with transport.unrolls(1) as [unroll]:
                assert (unroll.version == 0).all()
    thread.join(30)
    assert not thread.is_alive()
    assert newly_alive() == 0
