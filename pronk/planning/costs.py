"""What training costs per unit of work: a typed record, and the files that it is read from.

pronk bench PRESET --json > costs.json     environment, inference and learner alone
pronk plan PRESET --json > costs.json      also what lies around them: slots, batches, gateway, other learners
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from pronk.types import UserError

OF_BENCH = ("env", "inference", "learner")
REQUIRED = ("cores", "envs", "unroll_length", "batch_size", "actor", "update")
COUNTS = ("cores", "envs", "unroll_length", "batch_size", "threads", "frames_per_step")
SIZES = ("unroll_bytes", "parameters_bytes")
MAY_BE_ZERO = (*SIZES, "gateway", "send", "pull", "exchange")


@dataclass(frozen=True)
class Costs:
    """Seconds, bytes, and the shape of what was measured. Times are those of a core while all cores are busy."""

    cores: int
    """Of the machine that was measured."""
    envs: int
    """Environments of an actor."""
    unroll_length: int
    """Steps of an unroll."""
    batch_size: int
    """Columns of one learner's batch."""
    actor: float
    """Seconds per environment step for an actor to play it: environment, inference, and filling the slot."""
    update: float
    """Seconds per step that is learnt from, once: an update, divided by the steps of its batch."""
    threads: int = 1
    """Threads of the learner in that time."""
    device: str = "cpu"
    """Of the learner: `cpu`, or the kind of device that updates were measured on; `given`: on another machine."""
    crowding: float = 1.0
    """Speed of a core while all are busy, compared with its speed while the others are idle."""
    unroll_bytes: int = 0
    parameters_bytes: int = 0
    frames_per_step: int = 1
    gateway: float | None = None
    """Seconds per unroll of the gateway's core, with one fetch of parameters. None: not measured."""
    send: float | None = None
    """Seconds per unroll of the actor's core, to send it and to receive parameters."""
    pull: float | None = None
    """Seconds from an actor's request for parameters to the reply, on one machine."""
    exchange: float | None = None
    """Seconds per update for two learners of one machine to add up their gradients."""

    def fitted(self, envs: int, unroll_length: int, batch_size: int) -> Costs:
        """Return the costs of another shape. Times per step stay; those per unroll, and its size, grow with it."""
        factor = envs * unroll_length / (self.envs * self.unroll_length)

        def grown(seconds: float | None) -> float | None:
            return None if seconds is None else seconds * factor

        return replace(
            self,
            envs=envs,
            unroll_length=unroll_length,
            batch_size=batch_size,
            unroll_bytes=round(self.unroll_bytes * factor),
            gateway=grown(self.gateway),
            send=grown(self.send),
        )

    def plain(self) -> dict[str, Any]:
        """Return what `costs_of` reads."""
        return asdict(self)


@dataclass(frozen=True)
class Sizes:
    """What does not have to be measured: it follows from the configuration."""

    envs: int
    unroll_length: int
    batch_size: int
    unroll_bytes: int
    parameters_bytes: int
    frames_per_step: int


def read_costs(path: Path) -> dict[str, Any]:
    """Return the object of a costs file. Raises UserError if there is none."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the costs: {path}: {error.strerror}") from None
    except ValueError:
        raise UserError(f"{path} is not JSON; expected the output of `pronk bench` or `pronk plan` as JSON") from None
    if isinstance(tree, dict) and isinstance(tree.get("costs"), dict):
        tree = tree["costs"]
    if not isinstance(tree, dict) or not (has_all(tree, OF_BENCH) or has_all(tree, ("actor", "update"))):
        raise UserError(f"{path} has no costs; expected the output of `pronk bench` or `pronk plan` as JSON")
    return tree


def is_from_bench(tree: dict[str, Any]) -> bool:
    """Return whether the object is of `pronk bench`: rates of parts, without the sizes of messages."""
    return has_all(tree, OF_BENCH) and "update" not in tree


def costs_of(tree: dict[str, Any], path: Path) -> Costs:
    """Return the costs that `Costs.plain` wrote. Raises UserError for a wrong value, by its name."""
    known = {field.name for field in fields(Costs)}
    given = {name: value for name, value in tree.items() if name in known and value is not None}
    for name in REQUIRED:
        if name not in given:
            raise UserError(f"{path} has no {name!r}; write it with `pronk plan` as JSON")
    device = given.pop("device", "cpu")
    if not isinstance(device, str):
        raise UserError(f"{path}: device must be a name such as cpu, got {device!r}")
    return Costs(**{name: checked(name, value, path) for name, value in given.items()}, device=device)


def costs_of_bench(tree: dict[str, Any], sizes: Sizes, path: Path) -> Costs:
    """Return the costs that follow from rates of `pronk bench`, in steps per second. Raises UserError."""
    env, inference, learner = (checked(name, tree[name], path) for name in OF_BENCH)
    return Costs(
        cores=checked("cores", tree.get("cores", 1), path),
        actor=1 / env + 1 / inference,
        update=1 / learner,
        **asdict(sizes),
    )


def checked(name: str, value: Any, path: Path) -> Any:
    """Return a number of a costs file; counts and sizes as int. Raises UserError for one that makes no sense."""
    is_whole, may_be_zero = name in COUNTS or name in SIZES, name in MAY_BE_ZERO
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or value < 0 or (value == 0 and not may_be_zero) or (is_whole and value != int(value)):
        kind = "whole number" if is_whole else "number"
        least = "of at least 0" if may_be_zero else "above 0"
        raise UserError(f"{path}: {name} must be a {kind} {least}, got {value!r}")
    return int(value) if is_whole else value


def has_all(tree: dict[str, Any], names: tuple[str, ...]) -> bool:
    """Return whether the object has all these names."""
    return all(name in tree for name in names)
