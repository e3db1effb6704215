"""One body over every kind of `VectorEnv`: what `Step` promises, whatever is behind it."""

import numpy as np
import pytest

from pronk.config import Config
from pronk.envs import VectorEnv, gymnasium_vector, make_env, probe_spec
from pronk.seeding import actor_seeds, evaluation_seeds
from pronk.types import Step, Tree, leaves, map_tree

COUNT, STEPS = 3, 70
SEEDS, OTHER_SEEDS = actor_seeds(1, 0, 0, 0, COUNT)[1], [0, 2**31 - 1, evaluation_seeds(1, 1)[1][0]]
IMPLEMENTATIONS = {
    "catch": {"env": {"id": "catch", "kwargs": {"rows": 6, "columns": 4}}},
    "native": {"env": {"id": "CartPole-v1", "kwargs": {"max_episode_steps": 12}}},
    "sync": {"env": {"id": "CartPole-v1", "vectorization": "sync", "kwargs": {"max_episode_steps": 12}}},
    "async": {"env": {"id": "CartPole-v1", "vectorization": "async", "kwargs": {"max_episode_steps": 12}}},
    "atari": {"env": {"id": "atari", "game": "breakout", "atari": {"max_frames": 160, "size": 16, "noops": 3}}},
    "envpool": {
        "env": {
            "id": "atari",
            "game": "breakout",
            "atari": {"backend": "envpool", "max_frames": 160, "size": 16, "noops": 3},
        }
    },
    "envpool_ids": {"env": {"id": "envpool:CartPole-v1", "kwargs": {"max_episode_steps": 12}}},
    "envpool_text": {"env": {"id": "envpool:BabyAI-GoToObj-v0", "kwargs": {"max_episode_steps": 12}}},
    "teams": {"env": {"id": "pettingzoo:scripted:Relay"}},
    "wrapped": {"env": {"id": "scripted:Clock", "wrappers": [{"stack": 2}, {"time_limit": 3}]}},
    "own_class": {"env": {"id": "scripted:Clock"}},
    "own_class_async": {"env": {"id": "scripted:Clock", "vectorization": "async"}},
    "own_vector_class": {"env": {"id": "scripted:NextStepClock"}},
    "same_step": {"env": {"id": "scripted:SameStepClock"}},
    "same_step_batched": {"env": {"id": "scripted:SameStepClock", "kwargs": {"batched": True}}},
    "random_state": {"env": {"id": "scripted:Legacy"}},
    "masked": {"env": {"id": "scripted:Sampled", "kwargs": {"action": "multi_discrete", "masked": True}}},
    "tasks": {"env": {"tasks": ["scripted:Clock", "scripted:NextStepClock"]}},
    "tasks_async": {"env": {"vectorization": "async", "tasks": ["scripted:Clock", "scripted:SameStepClock"]}},
    "tasks_observed": {
        "env": {"tasks": ["scripted:Clock", "Clock-v0", "scripted:NextStepClock"], "task_observed": True},
        "network": {"last_action": True, "last_reward": True},
    },
    "last_inputs": {"env": {"id": "scripted:Clock"}, "network": {"last_action": True, "last_reward": True}},
    "last_inputs_real": {
        "env": {"id": "scripted:Sampled", "kwargs": {"observation": "tuple", "action": "box_grid"}},
        "network": {"last_action": True},
    },
    "last_inputs_teams": {
        "env": {"id": "pettingzoo:scripted:Relay"},
        "network": {"last_action": True, "last_reward": True},
    },
    "last_inputs_next_step": {
        "env": {"id": "scripted:NextStepClock"},
        "network": {"last_action": True, "last_reward": True},
    },
    "last_inputs_same_step": {
        "env": {"id": "scripted:SameStepClock"},
        "network": {"last_action": True, "last_reward": True},
    },
}


@pytest.fixture(params=IMPLEMENTATIONS, scope="module")
def config(request) -> Config:
    if request.param == "atari":
        pytest.importorskip("ale_py")
    if request.param.startswith("envpool"):
        pytest.importorskip("envpool", reason="the extra pronk[envpool] is not installed")
    return Config.model_validate(IMPLEMENTATIONS[request.param])


@pytest.fixture(scope="module")
def env(config):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gymnasium_vector, "MOST_WAITING", 1.0)  # a same-step vector waits for every truncation
        env = make_env(config, COUNT)
        yield env
        env.close()


@pytest.fixture(scope="module")
def game(env) -> tuple[list[Step], list[np.ndarray]]:
    return played(env, SEEDS)


def actions(env: VectorEnv, observation: Tree, random: np.random.Generator) -> np.ndarray:
    """Random ones in the agent's units, allowed by the mask."""
    action = env.spec.action
    if not action.choices:
        return random.normal(size=(COUNT, *action.shape)).astype(np.float32)
    mask = observation["action_mask"] if env.spec.has_action_mask else np.ones((COUNT, sum(action.choices)))
    cuts = np.cumsum(action.choices)[:-1]
    chosen = [(part * random.random(part.shape)).argmax(-1) for part in np.split(mask, cuts, axis=-1)]
    return np.stack(chosen, -1) if action.shape else chosen[0]


def played(env: VectorEnv, seeds: list[int], steps: int = STEPS) -> tuple[list[Step], list[np.ndarray]]:
    """The answer to `reset` and then to random actions, copied: an environment may reuse its arrays."""
    random = np.random.default_rng(5)
    answers, done = [copied(env.reset(seeds))], []
    for _ in range(steps):
        done.append(actions(env, answers[-1].observation, random))
        answers.append(copied(env.step(done[-1])))
    return answers, done


def copied(answer: Step) -> Step:
    return Step(*(map_tree(np.copy, field) for field in answer))


def test_the_probed_spec_is_that_of_the_environments(config, env):
    assert probe_spec(config) == env.spec
    assert env.count == COUNT


def test_every_environment_plays_one_of_the_tasks(env):
    assert np.shape(env.task) == (COUNT,)
    assert np.asarray(env.task).dtype == np.int32
    assert all(0 <= task < len(env.spec.tasks) for task in env.task)
    assert len(set(env.spec.tasks)) == len(env.spec.tasks)


def test_every_array_is_as_the_spec_says(env, game):
    answers, _ = game
    for answer in answers:
        for (path, array), (wanted_path, spec) in zip(
            leaves(answer.observation), leaves(env.spec.observation), strict=True
        ):
            assert path == wanted_path
            assert (array.shape, array.dtype) == ((COUNT, *spec.shape), spec.dtype), path
            if spec.categories:
                labels = array.reshape(COUNT, -1)
                assert np.all((labels >= 0) & (labels < spec.categories)), path
        for name in ("first", "reward", "discount", "valid", "episode_return", "episode_length"):
            assert np.shape(getattr(answer, name)) == (COUNT,), name
        assert answer.first.dtype == answer.valid.dtype == bool
        assert np.isin(answer.discount, (0, 1)).all()


def test_a_reset_opens_an_episode_everywhere(env):
    assert env.reset(SEEDS).first.all()


def test_an_episode_opens_exactly_where_the_successor_does_not_follow(config, env, game):
    answers, _ = game
    for answer in answers[1:]:
        terminated, ended = np.asarray(answer.discount) == 0, answer.episode_length > 0
        assert not (answer.first & answer.valid & ~terminated).any(), "nothing is bootstrapped from another episode"
        if env.spec.agents > 1:
            pass  # an agent that is done waits for its team
        elif answer.valid.any() or answer.first.all():
            assert not (~answer.valid & ~answer.first).any(), "only a reset breaks the sequence"
        else:
            assert answer.first.any(), "a vector waits only for an environment that resets"
        assert not ((terminated | ended) & ~answer.valid).any(), "the step that ends an episode counts"
        assert not (ended & ~terminated & answer.first).any(), "a truncated step is followed by its last observation"
        assert np.array_equal(ended, ~np.isnan(answer.episode_return))
        if config.env.id != "atari":  # where a lost life is no end of the game
            assert not (terminated & ~ended).any()
    assert sum(answer.first.sum() for answer in answers[1:]) > COUNT, "the episodes were too long to test anything"


def test_returns_and_lengths_are_of_whole_episodes(game):
    answers, _ = game
    earned, length = np.zeros(COUNT), np.zeros(COUNT, int)
    for answer in answers[1:]:
        ended = answer.episode_length > 0
        earned += answer.reward
        length += answer.valid  # every decision counts; a step that only resets is none
        np.testing.assert_allclose(answer.episode_return[ended], earned[ended], rtol=1e-6)
        np.testing.assert_array_equal(answer.episode_length[ended], length[ended])
        earned[ended], length[ended] = 0.0, 0


def test_last_inputs_are_those_of_the_step_before_and_zero_where_an_episode_opens(config, env, game):
    answers, done = game
    assert ("last_action" in leaf_names(env)) == config.network.last_action
    assert ("last_reward" in leaf_names(env)) == config.network.last_reward
    shift = 1 if env.spec.action.choices else 0
    for index, answer in enumerate(answers):
        for column in range(COUNT):
            opens = answer.first[column]
            if index and not (opens or answer.valid[column]):  # the vector waited: the action was not played
                for name in {"last_action", "last_reward"} & set(leaf_names(env)):
                    np.testing.assert_array_equal(
                        answer.observation[name][column], answers[index - 1].observation[name][column]
                    )
                continue
            if config.network.last_action:
                wanted = np.zeros(env.spec.action.shape) if opens else done[index - 1][column] + shift
                np.testing.assert_array_equal(answer.observation["last_action"][column], wanted)
            if config.network.last_reward:
                wanted = 0.0 if opens else min(1.0, max(-1.0, answer.reward[column]))
                assert answer.observation["last_reward"][column] == np.float32(wanted)


def leaf_names(env: VectorEnv) -> list[str]:
    return [path for path, _ in leaves(env.spec.observation)]


def test_the_same_seeds_give_the_same_episodes_and_others_do_not(env):
    first, again, other = (played(env, seeds, 20)[0] for seeds in (SEEDS, SEEDS, OTHER_SEEDS))
    assert as_bytes(first) == as_bytes(again)
    assert as_bytes(first) != as_bytes(other)


def as_bytes(answers: list[Step]) -> bytes:
    return b"".join(
        np.ascontiguousarray(array).tobytes() for answer in answers for field in answer for _, array in leaves(field)
    )
