"""Several tasks side by side: every view shows, and names, its own task."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pronk.config import Config, ResolvedConfig, resolve
from pronk.envs.filmed import make_filmed
from pronk.types import UserError
from pronk.watching.film import compose
from pronk.watching.watch import scenes_of


def config() -> ResolvedConfig:
    kwargs = ({"length": 2}, {"length": 4, "draws": "grey"})
    tasks = [{"name": name, "id": "drawn_envs:Counter", "kwargs": own} for name, own in zip("ab", kwargs, strict=True)]
    return resolve(Config().replace({"env.tasks": tasks}))


class Idle:
    """A policy that always does the same."""

    def act(self, observation: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, None]:
        return np.zeros(len(first), np.int64), None


def test_every_view_shows_its_own_task() -> None:
    filmed = make_filmed(config(), 3)
    scenes = scenes_of(filmed, Idle(), episodes=3, seeds=[1, 2, 3], steps=None)
    first = next(scenes)
    assert [view.caption.split()[0] for view in first.views] == ["a", "b", "a"]
    second = next(itertools.islice(scenes, 1, 2))  # after two steps, in which the episodes of `a` have ended
    assert [view.over for view in second.views] == [True, False, True]
    assert [int(np.max(view.picture)) for view in second.views] == [20, 20, 20]
    assert compose(second.views).size[0] > 0
    last = list(scenes)[-1]
    assert [view.score for view in last.views] == [2.0, 4.0, 2.0]
    filmed.env.close()


def test_one_task_can_be_chosen() -> None:
    filmed = make_filmed(config(), 2, "b")
    assert filmed.env.task.tolist() == [1, 1]
    filmed.env.close()
    with pytest.raises(UserError, match="no task 'c'; there are a, b"):
        make_filmed(config(), 1, "c")
