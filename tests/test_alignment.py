"""Every field of every unroll, held against a script: across borders of unrolls, ends of both kinds and resets."""

import collections
import copy
import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from scripted import ACTIONS, NAMES, OBSERVATIONS, earned, fate

from pronk.actor import make_actor, specs_for
from pronk.actors import Play, playing
from pronk.config import Config, ResolvedConfig, resolve
from pronk.envs import probe_spec
from pronk.layout import UnrollLayout
from pronk.learner import Learner
from pronk.networks import Network
from pronk.processes.interrupts import Interrupts
from pronk.runs.directory import RunDirectory
from pronk.seeding import actor_seeds
from pronk.transport.local import LocalTransport
from pronk.types import Unroll, map_tree, map_unroll

ACTORS, ENVS, LENGTH, SLOTS, ROUNDS, SEED, GENERATION = 2, 3, 5, 2, 6, 11, 40


class Recording(NamedTuple):
    """What two actors sent over some rounds with other weights in each, and the networks by version."""

    next_step: bool
    unrolls: list[list[Unroll]]  # [actor][position]
    networks: dict[int, Network]


def asked_for(**changes: Any) -> Config:
    return Config().replace(
        {
            "network.hidden": [16],
            "network.core_size": 8,
            "actors.count": ACTORS,
            "actors.envs": ENVS,
            "actors.unroll_length": LENGTH,
            "actors.slots": SLOTS,
            "learner.batch_size": ENVS,
            "learner.device": "cpu",
            "learner.threads": 1,
            "run.seed": SEED,
            **{path.replace("__", "."): value for path, value in changes.items()},
        }
    )


def config_for(**changes: Any) -> ResolvedConfig:
    return resolve(asked_for(**changes))


def opinionated_learner(config: ResolvedConfig) -> Learner:
    """With weights so large that every input, and the memory, makes a difference to every probability."""
    learner = Learner(config, probe_spec(config), torch.device("cpu"))
    shake(learner)
    return learner


@torch.no_grad()
def shake(learner: Learner) -> None:
    for weight in learner.network.parameters():
        weight.normal_(std=0.5)


def copied(unrolls: list[Unroll]) -> list[Unroll]:
    return [map_unroll(np.copy, unroll) for unroll in unrolls]


@pytest.fixture(
    scope="module",
    params=[(t, c) for t in ("local", "shared_memory") for c in ("scripted:Clock", "scripted:NextStepClock")],
    ids=lambda value: f"{value[0]}-{value[1].partition(':')[2]}",
)
def recording(request, tmp_path_factory) -> Recording:
    transport, clock = request.param
    config = config_for(
        transport__name=transport,
        env__id=clock,
        network__core="lstm",
        network__last_action=True,
        network__last_reward=True,
    )
    learner = opinionated_learner(config)
    specs = specs_for(config, learner.network.spec, learner.network.state_spec)
    run = RunDirectory.create(asked_for(), tmp_path_factory.mktemp("run") / "here", "here")
    networks, received = {}, []
    layout = UnrollLayout(specs)
    play = Play(config, layout, learner.parameters(), run.logs, GENERATION, Interrupts(), pytest.fail)
    with playing(play) as (port, _):
        for version in range(ROUNDS):
            networks[version] = copy.deepcopy(learner.network)
            with port.unrolls(ACTORS * SLOTS) as unrolls:  # all that both can send before one of these is freed
                received += copied(unrolls)
                shake(learner)
                learner.version += 1
                port.publish(learner.parameters())
    names = [names_of(actor)[0] for actor in range(ACTORS)]
    sent = [[u for u in received if u.observation["clock"][0, 0, 0] == name] for name in names]
    return Recording("NextStep" in clock, sent, networks)


def names_of(actor: int) -> list[int]:
    """How an actor's environments call themselves: by their seeds."""
    return [seed % NAMES for seed in actor_seeds(SEED, actor, 0, GENERATION, ENVS)[1]]


def test_no_unroll_is_lost_or_sent_twice(recording):
    assert len({name for actor in range(ACTORS) for name in names_of(actor)}) == ACTORS * ENVS
    assert [len(sent) for sent in recording.unrolls] == [SLOTS * ROUNDS] * ACTORS


def test_each_unroll_has_the_newest_parameters_of_its_time(recording):
    for unrolls in recording.unrolls:
        versions = np.array([unroll.version for unroll in unrolls])
        np.testing.assert_array_equal(versions, np.repeat(np.arange(ROUNDS), SLOTS)[:, None].repeat(ENVS, 1))
        assert all((unroll.task == 0).all() for unroll in unrolls)


def test_the_last_observation_is_the_first_of_the_next_unroll(recording):
    for unrolls in recording.unrolls:
        for before, after in itertools.pairwise(unrolls):
            map_tree(lambda a, b: np.testing.assert_array_equal(a[-1], b[0]), before.observation, after.observation)
            np.testing.assert_array_equal(before.first[-1], after.first[0])


def test_every_field_of_every_step_holds_what_the_script_says(recording):
    for actor, unrolls in enumerate(recording.unrolls):
        seeds = actor_seeds(SEED, actor, 0, GENERATION, ENVS)[1]
        for column, seed in enumerate(seeds):
            steps = {
                name: np.concatenate([getattr(unroll, name)[:LENGTH, column] for unroll in unrolls])
                for name in ("action", "first", "reward", "discount", "valid", "episode_return", "episode_length")
            }
            for key in unrolls[0].observation:
                parts = [unroll.observation[key][:LENGTH, column] for unroll in unrolls]
                steps[key] = np.concatenate([*parts, unrolls[-1].observation[key][LENGTH:, column]])
            steps["first"] = np.append(steps["first"], unrolls[-1].first[LENGTH, column])
            expected = timeline(seed, steps["action"].tolist(), recording.next_step)
            assert set(expected) == set(steps) - {"action"}
            for name, values in expected.items():
                np.testing.assert_array_equal(steps[name], values, err_msg=name)


def timeline(seed: int, actions: list[int], next_step: bool) -> dict[str, list]:
    """One environment's life, told slowly: what types.py says each field holds, for these actions."""
    told: dict[str, list] = collections.defaultdict(list)

    def see(episode: int, step: int, label: int, reward: float) -> None:
        opens = step == 0
        told["first"].append(opens)
        told["clock"].append([seed % NAMES, episode, step])
        told["reading"].append([[episode + 0.5], [-step / 4]])
        told["last"].append(0 if opens else label + 1)
        told["last_action"].append(0 if opens else label + 1)
        told["last_reward"].append(0.0 if opens else min(1.0, max(-1.0, reward)))

    def score(reward: float, discount: int, valid: bool, episode_return: float, episode_length: int) -> None:
        told["reward"].append(reward)
        told["discount"].append(discount)
        told["valid"].append(valid)
        told["episode_return"].append(episode_return)
        told["episode_length"].append(episode_length)

    episode = step = 0
    rewards: list[float] = []
    over = False
    see(0, 0, 0, 0.0)
    for action in actions:
        if over:  # only with next-step resets: this action is not played
            episode, step, rewards, over = episode + 1, 0, [], False
            score(0.0, 1, False, np.nan, 0)
            see(episode, 0, 0, 0.0)
            continue
        step += 1
        rewards.append(earned(episode, step, action))
        length, terminated, _ = fate(seed, episode)
        if step < length:
            score(rewards[-1], 1, True, np.nan, 0)
            see(episode, step, action, rewards[-1])
        elif next_step:
            over = True
            score(rewards[-1], 0 if terminated else 1, True, sum(rewards), len(rewards))
            see(episode, step, action, rewards[-1])
        else:
            score(rewards[-1], 0 if terminated else 1, terminated, sum(rewards), len(rewards))
            episode, step, rewards = episode + 1, 0, []
            see(episode, 0, 0, 0.0)
    return told


def test_the_recording_has_seen_every_kind_of_end_at_every_place(recording):
    unrolls = [unroll for sent in recording.unrolls for unroll in sent]
    ended = np.stack([unroll.episode_length > 0 for unroll in unrolls])
    terminated = np.stack([unroll.discount == 0 for unroll in unrolls])
    for place in (0, LENGTH - 1):  # at the borders of unrolls too
        assert terminated[:, place].any()
        assert (ended & ~terminated)[:, place].any()
    assert (np.stack([unroll.episode_length for unroll in unrolls]) == 1).any()
    if recording.next_step:
        assert any((~unroll.valid[0] & unroll.first[1]).any() for unroll in unrolls), "a reset right after a border"


@torch.inference_mode()
def look(network: Network, unroll: Unroll, state: Any = None) -> tuple[torch.Tensor, Any]:
    """The learner's log probabilities of the actions in an unroll, and the core's state before o_T."""
    batch = map_unroll(torch.from_numpy, unroll)
    acted_on = map_tree(lambda array: array[:-1], batch.observation)
    output = network(acted_on, batch.first[:-1], batch.state if state is None else state)
    return network.distribution(output.policy, acted_on).log_prob(batch.action), output.state


def test_the_learner_gives_each_action_the_probability_the_actor_gave_it(recording):
    wrong_state = wrong_version = 0.0
    for sent in recording.unrolls:
        for unroll in sent:
            version = int(unroll.version[0])
            mu, network = torch.from_numpy(unroll.log_prob), recording.networks[version]
            torch.testing.assert_close(look(network, unroll)[0], mu, rtol=0, atol=1e-5)
            forgetful = look(network, unroll, network.initial_state(ENVS))[0]
            other = look(recording.networks[(version + 1) % ROUNDS], unroll)[0]
            wrong_state = max(wrong_state, float((forgetful - mu).abs().max()))
            wrong_version = max(wrong_version, float((other - mu).abs().max()))
    assert min(wrong_state, wrong_version) > 0.1, "the test would not notice a wrong state or version"


def test_the_state_is_the_one_before_the_first_observation(recording):
    for sent in recording.unrolls:
        map_tree(lambda array: np.testing.assert_array_equal(array, 0), sent[0].state)
        for before, after in itertools.pairwise(sent):
            _, state = look(recording.networks[int(before.version[0])], before)
            for key, array in after.state.items():
                np.testing.assert_allclose(array, state[key], rtol=0, atol=1e-5)


SIGHTS = [(observation, "discrete", False) for observation in OBSERVATIONS]
DEEDS = [("dict", action, False) for action in ACTIONS]
MASKS = [("dict", action, True) for action in ("discrete_from_3", "multi_discrete")]


@pytest.mark.parametrize("core", ["none", "lstm"])
@pytest.mark.parametrize(("observation", "action", "masked"), SIGHTS + DEEDS + MASKS)
def test_pi_is_mu_before_any_update_in_every_space(observation, action, masked, core):
    config = config_for(
        env__id="scripted:Sampled",
        env__kwargs={"observation": observation, "action": action, "masked": masked},
        network__core=core,
        network__last_action=True,
        network__last_reward=True,
    )
    learner = opinionated_learner(config)
    transport = LocalTransport(UnrollLayout(specs_for(config, learner.network.spec, learner.network.state_spec)))
    transport.publish(learner.parameters())
    # The environment itself refuses an action that is masked or not of its space.
    with make_actor(config, lambda *_: transport, 0, 0, 0) as actor:
        transport.while_waiting = actor.advance
        for _ in range(3):
            with transport.unrolls(1) as [unroll]:
                pi, _ = look(learner.network, unroll)
                assert np.isfinite(unroll.log_prob).all()
                torch.testing.assert_close(pi, torch.from_numpy(unroll.log_prob), rtol=0, atol=1e-5)
                if masked:
                    allowed = np.take_along_axis(
                        unroll.observation["action_mask"][:-1], places(unroll.action, config), -1
                    )
                    assert allowed.all()


def places(action: np.ndarray, config: ResolvedConfig) -> np.ndarray:
    """Where in the mask each chosen option lies."""
    choices = np.array(probe_spec(config).action.choices)
    return action.reshape(LENGTH, ENVS, -1) + np.cumsum(choices) - choices
