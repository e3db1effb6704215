import itertools
from typing import Any

import numpy as np
from scripted import Sampled

from pronk.actor import make_actor, specs_for
from pronk.config import Config, resolve
from pronk.device import choose_device
from pronk.envs import make_env, probe_spec
from pronk.layout import UnrollLayout
from pronk.learner import Learner
from pronk.seeding import actor_seeds, evaluation_seeds, further_learner_seed, learner_seed
from pronk.transport.local import LocalTransport
from pronk.types import Unroll, leaves, map_unroll

ENVS = 5


def test_no_two_consumers_of_any_run_share_a_seed():
    runs, actors, lives = range(4), range(24), range(4)
    generations = (0, 1, 2, 1000, 2**32 - 1, 2**32, 2**32 + 1, 2**40)  # some need two words of a seed
    seeds = []
    for place in itertools.product(runs, actors, lives, generations):
        policy, environments = actor_seeds(*place, ENVS)
        seeds += [policy, *environments]
    for run in runs:
        policy, environments = evaluation_seeds(run, 64)
        seeds += [learner_seed(run), policy, *environments]
    for rank, actor, life, generation in itertools.product(range(1, 5), range(4), range(3), (0, 1, 1000, 2**40)):
        policy, environments = actor_seeds(0, actor, life, generation, ENVS, rank)
        seeds += [policy, *environments]
    seeds += [further_learner_seed(0, rank, generation) for rank in range(1, 5) for generation in (0, 1, 1000)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_seeds_are_the_same_every_time():
    assert actor_seeds(3, 1, 4, 1, ENVS) == actor_seeds(3, 1, 4, 1, ENVS)
    assert evaluation_seeds(3, 2) == evaluation_seeds(3, 2)
    assert learner_seed(3) == learner_seed(3)


def unrolls(actor: int = 0, life: int = 0, generation: int = 0, **changes: Any) -> list[Unroll]:
    """What one actor plays first, by fixed weights of seed 1."""
    settings = {
        "env.id": "CartPole-v1",
        "env.vectorization": "sync",
        "network.hidden": [8],
        "actors.envs": ENVS,
        "learner.batch_size": ENVS,
        **{path.replace("__", "."): value for path, value in changes.items()},
    }
    config = resolve(Config().replace(settings))
    learner = Learner(config.replace({"run.seed": 1}), probe_spec(config), choose_device("cpu"))
    transport = LocalTransport(UnrollLayout(specs_for(config, learner.network.spec, learner.network.state_spec)))
    transport.publish(learner.parameters())
    with make_actor(config, lambda *_: transport, actor, life, generation) as playing:
        transport.while_waiting = playing.advance
        with transport.unrolls(3) as taken:
            return [map_unroll(np.copy, unroll) for unroll in taken]


def as_bytes(played: list[Unroll]) -> bytes:
    return b"".join(array.tobytes() for unroll in played for _, array in leaves(unroll._asdict()))


def test_the_same_seed_plays_the_same_episodes_bit_for_bit():
    assert as_bytes(unrolls()) == as_bytes(unrolls())


def test_another_actor_life_generation_or_seed_plays_other_episodes():
    everyone = [unrolls(), unrolls(actor=1), unrolls(life=1), unrolls(generation=640), unrolls(run__seed=2)]
    opened = np.concatenate([played[0].observation[0] for played in everyone])
    assert len(np.unique(opened, axis=0)) == len(everyone) * ENVS  # nor do two environments of one actor
    chosen = [np.stack([unroll.action for unroll in played]) for played in everyone]
    assert all(np.any(a != b) for a, b in itertools.combinations(chosen, 2))


def test_actors_of_native_vector_environments_play_other_episodes_too():
    everyone = [unrolls(actor=actor, env__vectorization="native") for actor in range(3)]
    opened = np.concatenate([played[0].observation[0] for played in everyone])
    assert len(np.unique(opened, axis=0)) == len(everyone) * ENVS


def test_each_environment_gets_the_seed_meant_for_it():
    config = Config().replace({"env.id": "scripted:Sampled"})
    _, seeds = actor_seeds(1, 0, 0, 0, ENVS)
    together = make_env(config, ENVS).reset(seeds).observation
    alone = [Sampled().reset(seed=seed)[0] for seed in seeds]
    np.testing.assert_array_equal(together, alone)


def test_initial_weights_come_from_the_seed():
    config = resolve(Config())
    blocks = [
        Learner(config.replace({"run.seed": seed}), probe_spec(config), choose_device("cpu"))
        .parameters()
        .block.tobytes()
        for seed in (1, 1, 2)
    ]
    assert blocks[0] == blocks[1] != blocks[2]
