"""Every random number of a run comes from one seed.

Each consumer (the learner, a policy, an environment) has a stream of its own in one `SeedSequence` tree, named by its
position in the tree. Seeds are never derived by adding numbers to one another, so streams do not overlap.

`generation` is the number of environment steps that were trained when the processes were started. A resumed run
therefore draws new numbers, and two resumes of one checkpoint draw the same.

Environments get seeds of 31 bits, because many (MinAtar, everything on `numpy.random.RandomState`, emulators) accept
no more. Independent draws from so small a range would collide. Instead, the environments that start together are
numbered, and their seeds are a random permutation of the numbers: no two are the same. The two highest bits say what
the environment is for, so evaluations never play an episode of the training.
"""

from __future__ import annotations

import numpy as np

LEARNER, ACTORS, EVALUATION, FURTHER_ACTORS, FURTHER_LEARNERS, BESIDE_TRAINING, REPLAY, POPULATION = range(8)

PURPOSES = {ACTORS: 0, EVALUATION: 1, BESIDE_TRAINING: 2}  # the two highest bits of an environment's seed
NUMBER_BITS = 29


def stream(seed: int, *position: int) -> np.random.SeedSequence:
    """Return the stream at a position of the tree."""
    return np.random.SeedSequence(seed, spawn_key=position)


def as_int(sequence: np.random.SeedSequence) -> int:
    """Return a number of 63 bits, for generators that take a plain integer."""
    return int(sequence.generate_state(1, np.uint64)[0]) >> 1


def learner_seed(seed: int) -> int:
    """Return the seed of the initial weights."""
    return as_int(stream(seed, LEARNER))


def further_learner_seed(seed: int, rank: int, generation: int) -> int:
    """Return the seed of what learner `rank` > 0 draws after it received the weights (dropout in a user's network)."""
    return as_int(stream(seed, FURTHER_LEARNERS, rank, generation))


def replay_seed(seed: int, rank: int, generation: int) -> np.random.SeedSequence:
    """Return the seed of what learner `rank` draws from its replay buffer."""
    return stream(seed, REPLAY, rank, generation)


def population_seed(seed: int, number: int, member: int) -> np.random.SeedSequence:
    """Return the seed of what is drawn for a member before round `number` of a population."""
    return stream(seed, POPULATION, number, member)


def actor_seeds(seed: int, actor: int, life: int, generation: int, envs: int, rank: int = 0) -> tuple[int, list[int]]:
    """Return the policy's seed and one seed per environment, for the `life`-th start of an actor of learner `rank`.

    Environments of different actors never share a seed, if they have the same life, generation and learner. Otherwise
    they do by chance, once in 2^29.
    """
    learner = (FURTHER_ACTORS, rank) if rank else (ACTORS,)
    policy = stream(seed, *learner, generation, actor, life).spawn(1)[0]
    numbers = actor * envs + np.arange(envs, dtype=np.uint64)
    return as_int(policy), environment_seeds(numbers, stream(seed, *learner, generation, life), ACTORS)


def evaluation_seeds(seed: int, envs: int, purpose: int = EVALUATION) -> tuple[int, list[int]]:
    """Return the policy's seed and one seed per environment, for an evaluation.

    Evaluations beside the training (`BESIDE_TRAINING`) choose the best checkpoint. They play other episodes than later
    evaluations, whose scores of that checkpoint would otherwise be too high.
    """
    policy = stream(seed, purpose).spawn(1)[0]
    return as_int(policy), environment_seeds(np.arange(envs, dtype=np.uint64), stream(seed, purpose), purpose)


def environment_seeds(numbers: np.ndarray, key: np.random.SeedSequence, purpose: int) -> list[int]:
    """Return a seed of 31 bits for each number: the purpose, and the number under a permutation that `key` chooses."""
    mask = np.uint64(2**NUMBER_BITS - 1)
    scattered = numbers & mask
    # Each operation is a bijection of the 29-bit numbers, so their composition is one, too.
    for offset, factor in key.generate_state(8, np.uint32).astype(np.uint64).reshape(4, 2):
        scattered = (scattered + offset) & mask
        scattered = (scattered * (factor | np.uint64(1))) & mask
        scattered = scattered ^ (scattered >> np.uint64(15))
    return [PURPOSES[purpose] << NUMBER_BITS | int(number) for number in scattered]
