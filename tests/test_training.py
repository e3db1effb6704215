"""The loop of training.py, fed with unrolls made by hand."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from processes import read_metrics

from pronk import training
from pronk.actors import ActorSetup
from pronk.config import load_config, resolve
from pronk.metrics.counters import COUNTED_AT_ONCE
from pronk.metrics.returns import CONFIRMED, EPISODES
from pronk.runs import saver
from pronk.runs.checkpoint import load_checkpoint
from pronk.runs.directory import RunDirectory
from pronk.starting import learner_for, spec_of
from pronk.transport.local import LocalTransport
from pronk.types import Parameters

LENGTH, ENVS = 5, 2  # of an unroll; two of them are a batch
SIZES = (f"actors.unroll_length={LENGTH}", f"actors.envs={ENVS}", f"learner.batch_size={2 * ENVS}", "actors.count=1")
STEPS = LENGTH * 2 * ENVS  # of a batch


class Hands(LocalTransport):
    """Instead of an actor: unrolls that say which parameters they were played with."""

    def __init__(self, setup: ActorSetup, versions: list[int], returns: list[float] | None = None) -> None:
        """With `returns`, an episode of each environment ends with every step of an unroll."""
        super().__init__(setup.layout)
        self._versions = iter(versions)
        self._returns = iter(returns or [np.nan] * len(versions))
        self.published: list[int] = []
        self.while_waiting = self.fill

    def fill(self) -> None:
        with self.unroll() as unroll:
            unroll.valid[:] = True
            unroll.episode_return[:] = next(self._returns)
            unroll.episode_length[:] = 1
            unroll.environment[:] = range(ENVS)
            unroll.version[:] = next(self._versions)

    def publish(self, parameters: Parameters) -> None:
        super().publish(parameters)
        self.published.append(parameters.version)


@pytest.mark.parametrize(
    ("passes", "versions", "means", "again", "columns", "replayed"),
    [
        # Four updates, of versions 0, 1, 2 and 3; every unroll has two columns.
        (1, [0, 0, 0, 1, 0, 2, 1, 1], [0.0, 0.5, 1.0, 2.0], [None] * 4, {"0": 8, "1": 2, "2": 6}, None),
        # Every batch twice: the second time it is one update older. Updates of versions 0 and 1, 2 and 3, and 4.
        (
            2,
            [0, 0, 1, 2, 4, 4],
            [0.0, 0.0, 0.5, 0.5, 0.0],  # of fresh columns; where there are none, as in the line before
            [None, 1.0, None, 1.5, None],
            {"0": 10, "1": 2},
            {"1": 6, "2": 2},
        ),
    ],
)
def test_lag_is_the_version_that_is_updated_minus_the_one_that_played(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    passes: int,
    versions: list[int],
    means: list[float | None],
    again: list[float | None],
    columns: dict[str, int],
    replayed: dict[str, int] | None,
) -> None:
    ports = []

    @contextlib.contextmanager
    def running_actors(setup: ActorSetup) -> Iterator[tuple[Hands, Callable[[], None]]]:
        ports.append(Hands(setup, versions))
        yield ports[-1], lambda: None

    monkeypatch.setattr(training, "running_actors", running_actors)
    ending = ("run.stop_return=null", f"run.total_steps={STEPS * len(versions) // 2}")
    every_update = "run.log_every_seconds=1e-9"
    settings = [*SIZES, *ending, every_update, f"learner.passes={passes}", "transport=local"]
    config = load_config("catch", settings)
    run = RunDirectory.create(config, tmp_path / "run", "lag")
    resolved = resolve(config)
    learner = learner_for(resolved, spec_of(config))
    summary = training.Training(resolved, config, run, learner, False, pytest.fail).go(None)
    assert (summary["outcome"], summary["updates"]) == ("finished", len(means))
    lines = read_metrics(run.path)
    assert [line["policy_lag"] for line in lines] == means
    assert [line.get("replay_lag") for line in lines] == again
    counts = json.loads(run.lag.read_text())
    assert (counts["columns"], counts.get("replayed")) == (columns, replayed)
    assert ports[0].published == [number + 1 for number in range(len(means))]


BATCHES = EPISODES // STEPS  # that hold enough episodes to judge by
HELD = -(-BATCHES // COUNTED_AT_ONCE) * COUNTED_AT_ONCE  # updates after which that is seen


@pytest.mark.parametrize(("every_seconds", "saved_at"), [(0.0, 2 * BATCHES), (1e9, 3 * BATCHES)])
def test_a_new_best_is_saved_between_two_checkpoints_but_not_too_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every_seconds: float, saved_at: int
) -> None:
    """Returns of 1, then of 9, then of 1 again. The only other checkpoint is that at the end."""
    returns = [value for value in (1.0, 9.0, 1.0) for _ in range(2 * BATCHES)]

    @contextlib.contextmanager
    def running_actors(setup: ActorSetup) -> Iterator[tuple[Hands, Callable[[], None]]]:
        yield Hands(setup, [0] * len(returns), returns), lambda: None

    monkeypatch.setattr(training, "running_actors", running_actors)
    monkeypatch.setattr(saver, "BEST_EVERY_SECONDS", every_seconds)
    monkeypatch.setattr(saver, "BEST_SHARE", 1e9)
    settings = ("run.stop_return=null", "run.log_every_seconds=1e-9", "checkpoint.every_seconds=1e9", "transport=local")
    config = load_config("catch", [*SIZES, *settings, f"run.total_steps={STEPS * len(returns) // 2}"])
    run = RunDirectory.create(config, tmp_path / "run", "best")
    resolved = resolve(config)
    learner = learner_for(resolved, spec_of(config))
    training.Training(resolved, config, run, learner, False, pytest.fail).go(None)
    assert load_checkpoint(run.checkpoints.best)["metrics"]["updates"] == saved_at
    assert [path.stem for path in run.checkpoints.saved()] == [f"{3 * BATCHES * STEPS:012d}"]
    resumed = training.Training(resolved, config, run, learner, True, pytest.fail)
    assert resumed._saver.best == ((True, 9.0) if every_seconds == 0 else (True, 1.0))


@pytest.mark.parametrize("lag", [0, 3])
def test_solved_only_when_whole_episodes_of_held_weights_confirm_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lag: int
) -> None:
    """Episodes return 9, but 1 with the weights that are held first."""
    ports, said = [], []

    class Present(Hands):
        filled = 0

        def fill(self) -> None:
            version = self.published[-1] if self.published else 0
            self._versions, self._returns = iter([version]), iter([1.0 if version == HELD else 9.0])
            self.filled += 1
            super().fill()

    @contextlib.contextmanager
    def running_actors(setup: ActorSetup) -> Iterator[tuple[Hands, Callable[[], None]]]:
        ports.append(Present(setup, []))
        yield ports[-1], lambda: None

    monkeypatch.setattr(training, "running_actors", running_actors)
    ending = ("run.stop_return=5", "run.total_steps=1e6", f"learner.extra_lag={lag}")
    config = load_config("catch", [*SIZES, *ending, "transport=local"])
    run = RunDirectory.create(config, tmp_path / "run", "solved")
    resolved = resolve(config)
    learner = learner_for(resolved, spec_of(config))
    summary = training.Training(resolved, config, run, learner, False, said.append).go(None)
    assert said == [
        f"return 5 not confirmed: 1, the mean of {CONFIRMED} episodes of the present policy; training continues"
    ]
    assert (summary["outcome"], summary["episode_return"]) == ("solved", 9.0)
    # Nothing was learnt or counted while the weights were held. Others are held back; held weights never are.
    held, last = HELD, summary["updates"]
    published = [*range(1, held - lag), held, *range(held + 1, last - lag), last]
    assert ports[0].published == published
    assert summary["env_steps"] == summary["updates"] * STEPS
    assert ports[0].filled > 2 * summary["updates"]
    resumed = training.Training(resolved, config, run, learner, True, said.append)
    assert resumed._outcome() == "solved"
