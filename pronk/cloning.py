"""Behaviour cloning: before a run's first update, its policy learns to act as in recorded episodes.

`loss.clone` names a Minari dataset, such as `pronk record` writes. Its episodes are cut into unrolls of the run's own
length, and the learner goes through them several times with `CloneLoss`; normalisation, clipping of gradients and the
optimiser are those of training. A memory (network.core) starts empty in each unroll.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import torch

from pronk.config import ResolvedConfig
from pronk.config.named import import_extra
from pronk.envs.spaces import action_encoder, observation_encoder
from pronk.layout import chosen_columns
from pronk.learner import Learner, NonFinite
from pronk.losses.cloning import CloneLoss
from pronk.types import Array, EnvSpec, Failure, Tree, Unroll, UserError, assign, map_tree, map_unroll, unroll_specs

PASSES, LEAST_UPDATES = 10, 500  # a small dataset is gone through more often
PROGRESS_SECONDS = 5.0  # between two lines

Say = Callable[[str], None]


class Episode(NamedTuple):
    """A recorded episode of T steps, in Pronk's own arrays."""

    observation: Tree  # [T+1, ...]
    action: Array  # [T, ...]
    reward: Array  # [T]
    terminated: bool


def start_from_dataset(learner: Learner, config: ResolvedConfig, say: Say) -> str:
    """Clone the dataset of `loss.clone`; returns a line for the user. `say` gets the progress.

    Raises Failure if the loss or its gradient is not finite.
    """
    name = str(config.loss.clone)
    episodes = read_minari(name, learner.spec)
    try:
        before, after = clone(learner, config, episodes, say)
    except NonFinite as error:
        raise Failure(f"loss.clone: {name} cannot be learnt from: {error}") from None
    steps = sum(len(episode.reward) for episode in episodes)
    return (
        f"loss.clone: learnt from {len(episodes)} episodes ({steps:,} steps) of {name}; -log probability of their "
        f"actions {before:.3g} -> {after:.3g}"
    )


def read_minari(name: str, spec: EnvSpec) -> list[Episode]:
    """Read a local dataset. Raises `UserError` if it is missing, or recorded in another environment."""
    minari = import_extra("minari", f"loss.clone={name}", "minari")
    try:
        dataset = minari.load_dataset(name)
    except Exception as error:  # a torn or foreign file can fail in any way
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(f"loss.clone: cannot read the dataset {name}: {reason}") from None
    observation, encode = observation_encoder(dataset.observation_space)
    action, encode_action = action_encoder(dataset.action_space)
    for what, given, wanted in (("observations", observation, spec.observation), ("actions", action, spec.action)):
        if given != wanted:
            raise UserError(f"loss.clone: {name} has other {what} than the environment: {given}; expected {wanted}")
    return [
        Episode(
            encode(one.observations),
            encode_action(one.actions),
            np.asarray(one.rewards, np.float32),
            bool(one.terminations[-1]),
        )
        for one in dataset
        if len(one.rewards)
    ]


def clone(
    learner: Learner, config: ResolvedConfig, episodes: Iterable[Episode], say: Say = lambda line: None
) -> tuple[float, float]:
    """Go through the episodes several times; returns the mean of -log pi(a) in the first batch and in the last pass.

    `say` gets a line about the progress every few seconds.
    """
    data = unrolls_of(list(episodes), learner, config.actors.unroll_length)
    count, width = data.task.shape[0], config.learner.batch_size
    random = np.random.default_rng(config.run.seed)
    own_loss, learner.loss = learner.loss, CloneLoss(config.loss)
    reports, said_at = [], time.monotonic()
    batches = -(-count // width)
    passes = max(PASSES, -(-LEAST_UPDATES // batches))
    for _ in range(passes):
        order = random.permutation(count)
        for start in range(0, count, width):
            chosen = map_unroll(np.ascontiguousarray, chosen_columns(data, order[start : start + width]))
            batch = map_unroll(lambda array: torch.from_numpy(array).to(learner.device), chosen)
            report = learner.step(batch, config.optimiser.learning_rate)
            steps = 1 if config.loss.reduction == "mean" else max(1, int(chosen.valid.sum()))
            reports.append(report["policy_loss"] / steps)
            if time.monotonic() - said_at >= PROGRESS_SECONDS:
                said_at, done = time.monotonic(), len(reports) / (passes * batches)
                newest = float(np.mean(reports[-batches:]))
                say(f"loss.clone: {done:.0%} of {passes} passes, -log probability of the actions {newest:.3g}")
    learner.loss, learner.version = own_loss, 0  # versions count the updates of the run
    return reports[0], float(np.mean(reports[-batches:]))


def unrolls_of(episodes: list[Episode], learner: Learner, length: int) -> Unroll:
    """Cut episodes into pieces of `length` steps, the columns of one unroll. Steps after an episode are not valid."""
    starts = [(episode, at) for episode in episodes for at in range(0, len(episode.reward), length)]
    if not starts:
        raise UserError("loss.clone: the dataset has no episodes")
    specs = unroll_specs(learner.spec, learner.network.state_spec, length, len(starts))
    data = map_unroll(lambda spec: np.zeros(spec.shape, spec.dtype), specs)
    data.first[0] = True
    data.episode_return[:] = np.nan
    for column, (episode, at) in enumerate(starts):
        steps = min(length, len(episode.reward) - at)
        fill(data, column, episode, at, steps)
    return data


def fill(data: Unroll, column: int, episode: Episode, at: int, steps: int) -> None:
    """Write `steps` steps of an episode, from `at` on, into a column.

    The remaining rows repeat the last observation: an action mask of zeros would allow no action.
    """
    rows: Any = np.minimum(np.arange(len(data.first)), steps) + at
    assign(data.observation, np.s_[:, column], map_tree(lambda array: array[rows], episode.observation))
    data.action[:steps, column] = episode.action[at : at + steps]
    data.reward[:steps, column] = episode.reward[at : at + steps]
    data.discount[:steps, column] = 1.0
    if episode.terminated and at + steps == len(episode.reward):
        data.discount[steps - 1, column] = 0.0
    data.valid[:steps, column] = True
