"""Real actors and gateways for a learner that does not learn."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from pronk.actor import specs_for
from pronk.actors import ActorSetup, running_actors
from pronk.actors.base import Watch
from pronk.config import load_config, resolve
from pronk.config.resolved import Rank
from pronk.layout import UnrollLayout
from pronk.policies.numpy_mlp import small_mlp
from pronk.processes.interrupts import Interrupts
from pronk.runs.directory import RunDirectory
from pronk.starting import learner_for, spec_of
from pronk.transport import LearnerPort


def actor_setup(
    path: Path, name: str, *overrides: str, say: Callable[[str], None], rank: Rank | None = None
) -> ActorSetup:
    """What a learner would start its actors with."""
    asked = load_config(name, list(overrides))
    config = resolve(asked, rank or Rank())
    learner = learner_for(config, spec_of(config))
    specs = specs_for(config, learner.spec, learner.network.state_spec)
    run = RunDirectory.create(asked, path, "here")
    return ActorSetup(
        config,
        UnrollLayout(specs),
        learner.parameters(),
        small_mlp(learner.network, config.actors.envs),
        run.logs,
        0,
        Interrupts(),
        say,
    )


@contextlib.contextmanager
def actors_of(
    path: Path, name: str, *overrides: str, say: Callable[[str], None]
) -> Iterator[tuple[LearnerPort, Watch]]:
    """The port of a learner with real actors, and the function that watches them."""
    with running_actors(actor_setup(path, name, *overrides, say=say)) as running:
        yield running
