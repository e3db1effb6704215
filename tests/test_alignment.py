"""Every field of every unroll, compared with a script: across borders of unrolls, ends of both kinds and resets."""

import collections
import copy
import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from scripted import ACTIONS, NAMES, OBSERVATIONS, earned, fate

from pronk.actor import make_actor, specs_for
from pronk.actors import ActorSetup, running_actors
from pronk.config import Config, ResolvedConfig, resolve
from pronk.envs import gymnasium_vector, probe_spec
from pronk.layout import UnrollLayout
from pronk.learner import Learner
from pronk.networks import Network
from pronk.policies.numpy_mlp import small_mlp
from pronk.processes.interrupts import Interrupts
from pronk.runs.directory import RunDirectory
from pronk.seeding import actor_seeds
from pronk.transport.local import LocalTransport
from pronk.types import Unroll, map_tree, map_unroll

ACTORS, ENVS, LENGTH, SLOTS, ROUNDS, SEED, GENERATION = 2, 3, 5, 2, 6, 11, 40


class Recording(NamedTuple):
    """What two actors sent over some rounds with other weights in each, and the networks by version."""

    clock: str
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
    """With weights so large that every input, and the core's state, changes every probability."""
    learner = Learner(config, probe_spec(config), torch.device("cpu"))
    shake(learner)
    return learner


@torch.no_grad()
def shake(learner: Learner) -> None:
    for weight in learner.network.parameters():
        weight.normal_(std=0.5)


def copied(unrolls: list[Unroll]) -> list[Unroll]:
    return [map_unroll(np.copy, unroll) for unroll in unrolls]


@pytest.fixture(scope="module")
def module_patch():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(
    scope="module",
    params=[
        ("local", "Clock", "sync"),
        ("local", "NextStepClock", "auto"),
        ("local", "SameStepClock", "auto"),
        ("shared_memory", "Clock", "sync"),
        ("shared_memory", "Clock", "async"),
        ("shared_memory", "NextStepClock", "auto"),
        ("shared_memory", "Clock", "sync", "central"),
        ("grpc", "Clock", "sync", "central"),
    ],
    ids="-".join,
)
def recording(request, tmp_path_factory, module_patch) -> Recording:
    transport, clock, vectorization, *inference = request.param
    module_patch.setattr(gymnasium_vector, "MOST_WAITING", 1.0)  # a same-step vector waits for every truncation
    config = config_for(
        transport__name=transport,
        env__id=f"scripted:{clock}",
        env__vectorization=vectorization,
        actors__inference=inference[0] if inference else "local",
        network__core="lstm",
        network__last_action=True,
        network__last_reward=True,
    )
    learner = opinionated_learner(config)
    specs = specs_for(config, learner.network.spec, learner.network.state_spec)
    run = RunDirectory.create(asked_for(), tmp_path_factory.mktemp("run") / "here", "here")
    networks, received = {}, []
    layout = UnrollLayout(specs)
    setup = ActorSetup(
        config,
        layout,
        learner.parameters(),
        small_mlp(learner.network, config.actors.envs),
        run.logs,
        GENERATION,
        Interrupts(),
        pytest.fail,
    )
    with running_actors(setup) as (port, _):
        for version in range(ROUNDS):
            networks[version] = copy.deepcopy(learner.network)
            with port.unrolls(ACTORS * SLOTS) as unrolls:  # all that both can send before one of these is freed
                received += copied(unrolls)
                shake(learner)
                learner.version += 1
                port.publish(learner.parameters())
    names = [names_of(actor)[0] for actor in range(ACTORS)]
    sent = [[u for u in received if u.observation["clock"][0, 0, 0] == name] for name in names]
    return Recording(clock, sent, networks)


def names_of(actor: int) -> list[int]:
    """How an actor's environments name themselves: by their seeds."""
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
        actions = np.concatenate([unroll.action for unroll in unrolls])
        for column, expected in enumerate(timelines(recording.clock, seeds, actions)):
            steps = {
                name: np.concatenate([getattr(unroll, name)[:LENGTH, column] for unroll in unrolls])
                for name in ("first", "reward", "discount", "valid", "episode_return", "episode_length")
            }
            for key in unrolls[0].observation:
                parts = [unroll.observation[key][:LENGTH, column] for unroll in unrolls]
                steps[key] = np.concatenate([*parts, unrolls[-1].observation[key][LENGTH:, column]])
            steps["first"] = np.append(steps["first"], unrolls[-1].first[LENGTH, column])
            assert set(expected) == set(steps)
            for name, values in expected.items():
                np.testing.assert_array_equal(steps[name], values, err_msg=name)


def timelines(clock: str, seeds: list[int], actions: np.ndarray) -> list[dict[str, list]]:
    """What every field holds of each environment, for these actions [T, N]."""
    environments = [Timeline(seed, resets_next=clock == "NextStepClock") for seed in seeds]
    for row in actions.tolist():
        waits = clock == "SameStepClock" and any(environment.is_over for environment in environments)
        for environment, action in zip(environments, row, strict=True):
            if waits:
                environment.wait()
            else:
                environment.play(action)
    return [environment.told for environment in environments]


class Timeline:
    """One environment, step by step, as types.py and the modules of envs/ define the fields.

    `resets_next`: a terminated episode, too, shows its last observation and is reset in the step after it.
    """

    def __init__(self, seed: int, resets_next: bool) -> None:
        self.told: dict[str, list] = collections.defaultdict(list)
        self.is_over = False  # and its last observation is shown
        self._seed, self._resets_next, self._episode = seed, resets_next, -1
        self._open()

    def play(self, action: int) -> None:
        if self.is_over:  # the action is not played
            self.wait()
            return
        self._rewards.append(earned(self._episode, len(self._rewards) + 1, action))
        length, terminated, _ = fate(self._seed, self._episode)
        if len(self._rewards) < length:
            self._score(self._rewards[-1], 1, True, np.nan, 0)
            self._see(action)
            return
        self._score(self._rewards[-1], 0 if terminated else 1, True, sum(self._rewards), length)
        if terminated and not self._resets_next:
            self._open()
        else:
            self.is_over = True
            self._see(action)

    def wait(self) -> None:
        """A row in which no action is played: open the next episode, or show the same once more."""
        self._score(0.0, 1, False, np.nan, 0)
        if self.is_over:
            self._open()
        else:
            for name in ("first", "clock", "reading", "last", "last_action", "last_reward"):
                self.told[name].append(self.told[name][-1])

    def _open(self) -> None:
        self._episode, self._rewards, self.is_over = self._episode + 1, [], False
        self._see(-1)

    def _see(self, action: int) -> None:
        step = len(self._rewards)
        self.told["first"].append(step == 0)
        self.told["clock"].append([self._seed % NAMES, self._episode, step])
        self.told["reading"].append([[self._episode + 0.5], [-step / 4]])
        self.told["last"].append(action + 1)
        self.told["last_action"].append(action + 1)
        self.told["last_reward"].append(min(1.0, max(-1.0, self._rewards[-1])) if step else 0.0)

    def _score(self, reward: float, discount: int, valid: bool, episode_return: float, episode_length: int) -> None:
        self.told["reward"].append(reward)
        self.told["discount"].append(discount)
        self.told["valid"].append(valid)
        self.told["episode_return"].append(episode_return)
        self.told["episode_length"].append(episode_length)


def test_the_recording_has_seen_every_kind_of_end_at_every_place(recording):
    unrolls = [unroll for sent in recording.unrolls for unroll in sent]
    ended = np.stack([unroll.episode_length > 0 for unroll in unrolls])
    terminated = np.stack([unroll.discount == 0 for unroll in unrolls])
    for place in (0, LENGTH - 1):  # at the borders of unrolls too
        assert terminated[:, place].any()
        assert (ended & ~terminated)[:, place].any()
    assert (np.stack([unroll.episode_length for unroll in unrolls]) == 1).any()
    assert any((~unroll.valid[0] & unroll.first[1]).any() for unroll in unrolls), "a reset right after a border"
    truncated = ended & ~terminated
    assert np.stack([unroll.valid for unroll in unrolls])[truncated].all()
    if recording.clock == "SameStepClock":
        repeated = [~unroll.valid & ~unroll.first[1:] for unroll in unrolls]
        assert np.any(repeated), "an environment that waited in the middle of an episode"


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
                torch.testing.assert_close(pi, torch.from_numpy(unroll.log_prob), rtol=0, atol=3e-5)
                if masked:
                    allowed = np.take_along_axis(
                        unroll.observation["action_mask"][:-1], places(unroll.action, config), -1
                    )
                    assert allowed.all()


def places(action: np.ndarray, config: ResolvedConfig) -> np.ndarray:
    """Where in the mask each chosen option lies."""
    choices = np.array(probe_spec(config).action.choices)
    return action.reshape(LENGTH, ENVS, -1) + np.cumsum(choices) - choices
