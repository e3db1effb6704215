"""All randomness of a run comes from one seed.

Every consumer gets its own stream of one `SeedSequence` tree, named by its place in the tree; seeds are never added to
one another, so no two consumers can meet. `generation` is the number of environment steps already trained when the
processes were started: a resumed run draws new numbers, and two resumes of one checkpoint draw the same.
"""

from __future__ import annotations

import numpy as np

LEARNER, ACTORS, EVALUATION, FURTHER_ACTORS, FURTHER_LEARNERS, BESIDE_TRAINING = range(6)


def stream(seed: int, *place: int) -> np.random.SeedSequence:
    """The stream at a place of the tree."""
    return np.random.SeedSequence(seed, spawn_key=place)


def as_int(sequence: np.random.SeedSequence) -> int:
    """One 63-bit number of a stream, for generators that take a plain integer."""
    return int(sequence.generate_state(1, np.uint64)[0] >> 1)


def learner_seed(seed: int) -> int:
    """Seeds the initial weights."""
    return as_int(stream(seed, LEARNER))


def further_learner_seed(seed: int, rank: int, generation: int) -> int:
    """What a further learner draws once the weights are there, such as dropout in a network of the user's."""
    return as_int(stream(seed, FURTHER_LEARNERS, rank, generation))


def actor_seeds(seed: int, actor: int, life: int, generation: int, envs: int, rank: int = 0) -> tuple[int, list[int]]:
    """The policy's seed and one seed per environment, for the `life`-th start of an actor of learner `rank`."""
    learner = (FURTHER_ACTORS, rank) if rank else (ACTORS,)
    policy, *environments = stream(seed, *learner, generation, actor, life).spawn(envs + 1)
    return as_int(policy), [as_int(environment) for environment in environments]


def evaluation_seeds(seed: int, envs: int, place: int = EVALUATION) -> tuple[int, list[int]]:
    """Like `actor_seeds`, for an evaluation, which meets none of the training's episodes.

    Evaluations beside training have a place of their own: they choose the best checkpoint, and the episodes that it was
    chosen by would flatter it.
    """
    policy, *environments = stream(seed, place).spawn(envs + 1)
    return as_int(policy), [as_int(environment) for environment in environments]
