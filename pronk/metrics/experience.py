"""What an update's batch adds to the counters of metrics.jsonl."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from pronk.layout import chosen_columns
from pronk.metrics.returns import EPISODES, Column, Episode
from pronk.types import Array, Unroll


class Experience(NamedTuple):
    """What a batch adds to the counters. Only its fresh columns count, those that were not learnt from before.

    It travels between learners as JSON, where every tuple becomes a list.
    """

    steps: int  # valid ones
    ended: int  # episodes
    columns: list[Column]
    episodes: list[Episode]  # of those that ended, the last of each column
    length: int  # T
    lag: float  # in updates, mean over the columns; 0 if there are none
    replayed: int = 0  # columns that are not fresh
    replay_lag: float = 0.0  # mean over these
    info: dict[str, tuple[float, int]] = {}  # noqa: RUF012  of each number that environments gave: its sum, and how many gave it

    @classmethod
    def of(cls, unroll: Unroll, version: int, fresh: Array | None = None) -> Experience:
        """Return the experience in a batch of NumPy arrays, which updates weights of `version`. `fresh` is [B] bool."""
        if fresh is not None and not fresh.all():
            replayed = unroll.version[~fresh]
            counted = cls.of(chosen_columns(counted_part(unroll), fresh), version)
            return counted._replace(replayed=len(replayed), replay_lag=mean_lag(replayed, version))
        ended = ~np.isnan(unroll.episode_return)
        fields = (unroll.environment, unroll.task, unroll.first[0], unroll.first[-1])
        count = int(np.count_nonzero(ended))
        return cls(
            steps=int(np.count_nonzero(unroll.valid)),
            ended=count,
            columns=list(zip(*(field.tolist() for field in fields), strict=True)),
            episodes=last_episodes(unroll, ended) if count else [],
            length=len(unroll.valid),
            lag=mean_lag(unroll.version, version),
            info={name: sum_and_count(numbers) for name, numbers in unroll.info.items()},
        )

    @property
    def is_fresh(self) -> bool:
        """Whether any column is."""
        return bool(self.columns)

    def counted(self) -> Experience:
        """See `Played`."""
        return self

    @classmethod
    def merged(cls, parts: Sequence[Experience]) -> Experience:
        """Return the experience of all batches side by side."""
        fresh, replayed = (sum(len(part.columns) for part in parts), sum(part.replayed for part in parts))
        return cls(
            steps=sum(part.steps for part in parts),
            ended=sum(part.ended for part in parts),
            columns=[column for part in parts for column in part.columns],
            episodes=[episode for part in parts for episode in part.episodes],
            length=parts[0].length,
            lag=sum(part.lag * len(part.columns) for part in parts) / max(1, fresh),
            replayed=replayed,
            replay_lag=sum(part.replay_lag * part.replayed for part in parts) / max(1, replayed),
            info={name: added(part.info[name] for part in parts) for name in parts[0].info},
        )


class Played(NamedTuple):
    """A batch of which only the steps were counted so far.

    Counting takes much longer than it should where each update has to load Python's code into the cache again. So a
    batch's small arrays are kept, and those of several batches are counted at once.
    """

    steps: int  # valid ones, in fresh columns
    is_fresh: bool
    unroll: Unroll
    version: int
    fresh: Array

    @classmethod
    def of(cls, unroll: Unroll, version: int, fresh: Array) -> Played:
        """Take what is needed of a batch, of which the memory is used again. See `Experience.of`."""
        valid = unroll.valid if fresh.all() else unroll.valid & fresh
        kept = counted_part(unroll)._replace(
            first=unroll.first.copy(),
            valid=unroll.valid.copy(),
            episode_return=unroll.episode_return.copy(),
            episode_length=unroll.episode_length.copy(),
            version=unroll.version.copy(),
            task=unroll.task.copy(),
            environment=unroll.environment.copy(),
            info={name: numbers.copy() for name, numbers in unroll.info.items()},
        )
        return cls(int(np.count_nonzero(valid)), bool(fresh.any()), kept, version, fresh)

    def counted(self) -> Experience:
        """Return the experience in the batch."""
        return Experience.of(self.unroll, self.version, self.fresh)


def counted_part(unroll: Unroll) -> Unroll:
    """Return an unroll without the arrays that nothing is counted of, the large ones."""
    return unroll._replace(observation={}, action={}, log_prob={}, reward={}, discount={}, state={})


def sum_and_count(numbers: Array) -> tuple[float, int]:
    """Return the sum of those that are not NaN, and how many they are."""
    return float(np.nansum(numbers, dtype=np.float64)), int(np.count_nonzero(~np.isnan(numbers)))


def added(pairs: Iterable[Sequence[float]]) -> tuple[float, int]:
    """Return the sums of pairs (sum, count)."""
    total, count = map(sum, zip(*pairs, strict=True))
    return total, int(count)


def mean_lag(versions: Array, version: int) -> float:
    """Return how many updates older than `version` columns are on average; 0 if there are none."""
    return float(version - versions.mean()) if len(versions) else 0.0


def last_episodes(unroll: Unroll, ended: Array) -> list[Episode]:
    """Return the last episodes of each column, oldest first, and no more than `Returns` would keep of them."""
    if np.count_nonzero(ended) > len(unroll.environment):  # else they are few
        _, one_of_each = np.unique(unroll.environment, return_index=True)
        _, environments = np.unique(unroll.task[one_of_each], return_counts=True)  # of each task
        most = math.ceil(EPISODES / min(environments))
        until_the_end = np.cumsum(ended[::-1], axis=0)[::-1]  # how many have ended from here on
        ended = ended & (until_the_end <= most)
    column, step = ended.T.nonzero()
    fields = (unroll.environment[column], unroll.task[column])
    results = (unroll.episode_return[step, column], unroll.episode_length[step, column])
    return list(zip(*(field.tolist() for field in (*fields, *results)), strict=True))
