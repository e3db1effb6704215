"""The settings that `pronk bench --tune` tries: those that change the speed, but not what an update learns from."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Any, NamedTuple

from pydantic import ValidationError

from pronk.config import Config, ResolvedConfig, decided, resolve
from pronk.config.resolved import check_resolved
from pronk.config.trees import pop
from pronk.starting import check_teams
from pronk.types import EnvSpec, UserError


class Setting(NamedTuple):
    """One point of the grid."""

    actors: int
    envs: int
    slots: int
    threads: int

    @property
    def changes(self) -> dict[str, int]:
        """Its keys and values."""
        return dict(zip(KEYS, self, strict=True))

    def __str__(self) -> str:
        return " ".join(f"{key}={value}" for key, value in self.changes.items())


KEYS = ("actors.count", "actors.envs", "actors.slots", "learner.threads")
# These follow from the keys above, and change nothing about learning.
FOLLOWS = ("evaluation.envs",)


def setting_of(config: ResolvedConfig) -> Setting:
    """Return the setting that a configuration has."""
    return Setting(*(config.at(key) for key in KEYS))


def grid(config: Config, spec: EnvSpec, cores: int, fixed: Collection[str] = ()) -> list[Setting]:
    """Return the settings to try. The first is the one that the configuration has by itself.

    Args:
        config: what to tune.
        spec: of its environment.
        cores: of this machine.
        fixed: keys that stay as they are.

    Raises:
        UserError: the configuration cannot be tuned.
    """
    check_tunable(config)
    base = resolve(decided(config, spec))
    check_resolved(base)
    default = setting_of(base)
    values = {
        "actors.count": {1, 2, cores // 2, cores - 1, cores, cores + 1, default.actors} - {0},
        "actors.envs": {default.envs // 2, default.envs, default.envs * 2} - {0},
        "actors.slots": {1, 2, default.slots},
        "learner.threads": {1, cores, default.threads},
    }
    values |= {key: {value} for key, value in default.changes.items() if key in fixed}
    points = itertools.starmap(Setting, itertools.product(*(sorted(values[key]) for key in KEYS)))
    others = [one for one in points if one != default and fits(config, spec, one, base)]
    if not others:
        free = [key for key in KEYS if key not in fixed]
        why = f"no other {', '.join(free)} is possible" if free else f"{', '.join(KEYS)} are all set; leave one out"
        raise UserError(f"nothing to tune: {why}")
    return [default, *others]


def check_tunable(config: Config) -> None:
    """Raise UserError unless one learner trains on this machine with actors that are processes."""
    if config.transport.name == "local":
        raise UserError("nothing to tune: transport=local has no actor processes; use transport=shared_memory")
    if config.learners.count not in ("auto", 1):
        raise UserError(f"only one learner can be tuned, got learners.count={config.learners.count}; leave it out")
    if config.cluster.name != "local":
        raise UserError(f"only this machine can be tuned, got cluster={config.cluster.name}; leave it out")
    if config.gateway.address is not None:
        raise UserError("only actors of this machine can be tuned; leave gateway.address out")


def fits(config: Config, spec: EnvSpec, setting: Setting, base: ResolvedConfig) -> bool:
    """Return whether a setting can be trained, and learns from the same batches as `base`, as often."""
    try:
        changed = resolve(decided(config.replace(setting.changes), spec))
        check_resolved(changed)
        check_teams(changed, spec)
    except (UserError, ValidationError):
        return False
    return rest_of(changed) == rest_of(base)


def rest_of(config: ResolvedConfig) -> dict[str, Any]:
    """Return a configuration without what is tuned and what follows from it."""
    tree = config.model_dump()
    for key in (*KEYS, *FOLLOWS):
        tree, _ = pop(tree, key)
    return tree


def least_changes(config: Config, spec: EnvSpec, setting: Setting) -> dict[str, int]:
    """Return the keys that have to be set for a configuration to have this setting: none that it has by itself."""
    changes: dict[str, int] = {}
    while True:
        there = setting_of(resolve(decided(config.replace(changes), spec))).changes
        missing = {key: value for key, value in setting.changes.items() if there[key] != value}
        if not missing:
            return changes
        changes |= missing
