"""The typed configuration: the sections of `knobs.py` put together, checked, and read from files and overrides.

A configuration is made in one way: a preset or a YAML file, then `section.key=value` overrides, then validation.
`pronk show` prints the result, which is itself a valid file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError, model_validator

from pronk.config import plain_yaml
from pronk.config.errors import explain_validation_error, nearest
from pronk.config.knobs import (
    ActorsConfig,
    CheckpointConfig,
    EnvConfig,
    EvaluationConfig,
    LaunchConfig,
    LearnerConfig,
    LearnersConfig,
    LossConfig,
    NetworkConfig,
    OptimiserConfig,
    RunConfig,
    Section,
    TransportConfig,
)
from pronk.types import UserError

PRESETS = Path(__file__).parent / "presets"
FOREIGN_KEYS = {"alg_para", "env_para", "agent_para", "model_para"}  # of XingTian's files; see xingtian.py


class Config(Section):
    """A whole run."""

    description: str = ""
    env: EnvConfig = EnvConfig()
    network: NetworkConfig = NetworkConfig()
    loss: LossConfig = LossConfig()
    optimiser: OptimiserConfig = OptimiserConfig()
    actors: ActorsConfig = ActorsConfig()
    learner: LearnerConfig = LearnerConfig()
    learners: LearnersConfig = LearnersConfig()
    transport: TransportConfig = TransportConfig()
    launch: LaunchConfig = LaunchConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    run: RunConfig = RunConfig()

    @model_validator(mode="after")
    def _fits_together(self) -> Config:
        if self.network.separate_value is True and self.network.core != "none":
            raise ValueError("network.separate_value=true needs network.core=none: the two would need a state each")
        envs, batch, learners = self.actors.envs, self.columns, self.learners.count
        if batch == 0 or (learners != "auto" and self.learner.batch_size % learners):
            raise ValueError(
                f"learner.batch_size ({self.learner.batch_size}) must be a multiple of learners.count ({learners}): "
                f"try learner.batch_size={(batch + 1) * learners}"
            )
        if envs != "auto" and envs % batch and batch % envs:
            part = f"learner.batch_size ({batch})"
            if learners not in ("auto", 1):
                part = f"learner.batch_size / learners.count ({batch})"
            raise ValueError(
                f"{part} must be a multiple or a divisor of actors.envs ({envs}): "
                f"try learner.batch_size={envs if learners == 'auto' else envs * learners}"
            )
        if self.actors.count == 0 and self.transport.address is None:
            raise ValueError("actors.count=0 leaves nobody to play, unless transport.address lets others join")
        if self.transport.name == "local" and self.transport.address is not None:
            raise ValueError("transport=local is one process; transport.address needs transport=shared_memory")
        return self

    @property
    def columns(self) -> int:
        """Of one learner's batch."""
        return self.learner.batch_size // (1 if self.learners.count == "auto" else self.learners.count)

    def resolved(self) -> Config:
        """With every `auto` replaced by this machine's value; the device and the number of learners stay."""
        count = self.actors.count
        if count == "auto":
            count = 1 if self.transport.name == "local" else available_cores()
        envs, batch = self.actors.envs, self.columns
        if envs == "auto":
            envs = 16 if batch % 16 == 0 or 16 % batch == 0 else batch
        threads = self.learner.threads
        if threads == "auto":
            threads = max(1, available_cores() - count) if self.transport.name != "local" else 1
        one_process = (
            self.transport.name == "local" and self.learners.count in ("auto", 1) and not self.evaluation.enabled
        )
        for key, name in [("env", self.env.id), ("network", self.network.name), ("loss", self.loss.name)]:
            if name.startswith("__main__:") and not one_process:
                raise UserError(f"{key}: another process cannot import the script; put {name} in a module of its own")
        needed, room = batch // envs, count * self.actors.slots
        if self.transport.name != "local" and self.transport.address is None and needed > room:
            raise UserError(
                f"learner.batch_size={batch} joins {needed} unrolls of {envs} environments, but actors.count={count} "
                f"with actors.slots={self.actors.slots} can have only {room} ready: raise one of these, or actors.envs"
            )
        separate = self.network.separate_value
        if separate == "auto":
            separate = self.network.torso == "mlp" and self.network.core == "none"
        return self.replace(
            {
                "actors.count": count,
                "actors.envs": envs,
                "learner.threads": threads,
                "network.separate_value": separate,
            }
        )

    def replace(self, changes: dict[str, Any]) -> Config:
        """A copy with some `section.key`s changed, validated again."""
        tree = self.model_dump()
        for path, value in changes.items():
            assign(tree, path, value)
        return Config.model_validate(tree)

    def to_yaml(self) -> str:
        """The whole configuration; `load_config` reads it back."""
        return plain_yaml.dump(self.model_dump())


def available_cores() -> int:
    """Cores this process may use: fewer than the machine has under an affinity or a container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, -(-int(quota) // int(period))))
    except (OSError, ValueError):  # no such file, or "max"
        return cores


def preset_names() -> list[str]:
    """The presets that come with Pronk."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def load_config(source: str | Path, overrides: list[str] | None = None) -> Config:
    """A preset, a YAML file or a Gymnasium id, with `section.key=value` overrides on top."""
    tree = read_source(str(source))
    for override in overrides or []:
        path, separator, text = override.partition("=")
        if not separator or not path:
            raise UserError(f"{override!r} is not an override; write section.key=value, such as run.seed=3")
        try:
            assign(tree, path, plain_yaml.parse(text) if text else "")
        except yaml.YAMLError:
            raise UserError(f"{override!r}: {text!r} is not a YAML value; quote it?") from None
    return validate(tree, str(source))


def validate(tree: dict[str, Any], source: str = "the configuration") -> Config:
    """A configuration from plain data, with mistakes explained in one line."""
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise UserError(f"{source}: {explain_validation_error(error, Config)}") from None


def read_source(source: str, heirs: tuple[str, ...] = ()) -> dict[str, Any]:
    """The plain data of a preset, a YAML file, or the defaults for a Gymnasium id. `base: NAME` in a file builds on
    another one; `heirs` are those that build on this one."""
    if source in heirs:
        raise UserError(f"base: {' -> '.join([*heirs, source])} leads back to itself")
    if source in preset_names() or source.endswith((".yaml", ".yml")):
        tree = read_yaml(PRESETS / f"{source}.yaml" if source in preset_names() else Path(source))
        if FOREIGN_KEYS & tree.keys():
            raise UserError(f"{source} is a XingTian file; make it a Pronk one: pronk convert {source} --out mine.yaml")
        if "base" not in tree:
            return tree
        return merged(read_source(str(tree.pop("base")), (*heirs, source)), tree)
    if re.search(r"-v\d+$", source) or ":" in source:
        return {"env": {"id": source}}
    if source and Path(source).is_dir():
        raise UserError(f"{source} is a directory; to go on with a run: pronk train {source} --resume")
    raise UserError(
        f"no preset {source!r}{nearest(source, preset_names())}; `pronk presets` lists them. "
        "A Gymnasium id (Acrobot-v1) or a YAML file (my.yaml) also works"
    )


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
    try:
        tree = plain_yaml.parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"no such file: {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if tree is None:
        raise UserError(f"{path} is empty; it should hold sections such as `env:` and `run:`")
    if not isinstance(tree, dict):
        raise UserError(f"{path} must hold sections such as `env:` and `run:`, not {type(tree).__name__}")
    return tree


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with `changes` on top, section by section."""
    both = {key for key in changes if isinstance(changes[key], dict) and isinstance(base.get(key), dict)}
    return {**base, **changes, **{key: merged(base[key], changes[key]) for key in both}}


# What `section=value` means: `transport=local` is short for `transport.name=local`.
SHORTHAND = {
    **dict.fromkeys(["network", "loss", "optimiser", "transport", "launch"], "name"),
    **{"env": "id", "learners": "count", "evaluation": "enabled"},
}


def assign(tree: dict[str, Any], path: str, value: Any) -> None:
    """Set `section.key` in plain data."""
    keys = path.split(".")
    if keys[0] in SHORTHAND and len(keys) == 1 and not isinstance(value, dict):
        keys.append(SHORTHAND[keys[0]])
    for key in keys[:-1]:
        node = tree.get(key)
        if not isinstance(node, dict):
            node = tree[key] = {}
        tree = node
    tree[keys[-1]] = value
