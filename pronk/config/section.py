"""The base class of every section of the configuration, and the types of values that knobs have."""

from __future__ import annotations

import datetime
import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema, field_validator

from pronk.config.errors import nearest


class Section(BaseModel):
    """A section of the configuration. Immutable; unknown keys are refused. The docstring of a field explains it."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_bool_for_number(cls, value: Any, info: ValidationInfo) -> Any:
        # Pydantic would read `run.seed=true` as 1.
        if isinstance(value, bool) and "bool" not in str(cls.model_fields[str(info.field_name)].annotation):
            raise ValueError(f"{str(value).lower()} is not a number or a name")
        return value


def check_plain(value: Any) -> Any:
    """Return the value if YAML can carry it to another process unchanged, else raise ValueError."""
    match value:
        case None | bool() | int() | float() | str() | datetime.date():
            return value
        case list():
            return [check_plain(part) for part in value]
        case dict():
            return {check_plain(key): check_plain(part) for key, part in value.items()}
    raise ValueError(f"{value!r} is a {type(value).__name__}; only numbers, strings, lists and dicts reach an actor")


def as_list(value: Any) -> Any:
    """Turn a single name into a list of one."""
    return [value] if isinstance(value, str) else value


def check_points(value: Any) -> Any:
    """Refuse a list that is not `[[steps, factor], ...]` in order; leave everything else to the field's type."""
    if not isinstance(value, list):
        return value
    if not value or not all(isinstance(point, list) and len(point) == 2 for point in value):
        raise ValueError(f"{value!r} is not a list of [steps, factor], such as [[0, 1], [1e6, 0.1]]")
    for point in value:
        if not all(type(part) in (int, float) and 0 <= part < math.inf for part in point):
            raise ValueError(f"{point!r} is not [steps, factor]: two numbers, at least 0")
    steps = [point[0] for point in value]
    if steps != sorted(steps):
        raise ValueError(f"the steps {steps} must not fall")
    return value


def as_chain(value: Any) -> Any:
    """Turn `name`, `{name: arguments}` or a list of these into [{name: arguments}, ...]; raise ValueError."""
    entries = value if isinstance(value, list) else [value]
    return [_as_entry(entry) for entry in entries]


def _as_entry(entry: Any) -> dict[str, Any]:
    match entry:
        case str():
            return {entry: None}
        case dict() if len(entry) == 1 and isinstance(next(iter(entry)), str):
            return check_plain(entry)
    raise ValueError(f"expected a name, or {{name: {{argument: value}}}} such as {{resize: 84}}, got {entry!r}")


TASK_KEYS = ("name", "id", "game", "kwargs", "wrappers")


def as_tasks(value: Any) -> Any:
    """Turn a list of ids and mappings into a list of mappings; raise ValueError for anything else."""
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is not a list of tasks, such as [CartPole-v1, {{id: Acrobot-v1}}]")
    return [_as_task(entry) for entry in value]


def _as_task(entry: Any) -> Any:
    if isinstance(entry, BaseModel):
        return entry
    if isinstance(entry, str) and entry:
        return {"id": entry}
    if not isinstance(entry, dict):
        raise ValueError(f"{entry!r} is not a task; write an id, or keys such as {{id: Acrobot-v1, name: swing}}")
    for key in entry:
        if key not in TASK_KEYS:
            raise ValueError(f"a task has no key {key!r}{nearest(str(key), TASK_KEYS)}; it has {', '.join(TASK_KEYS)}")
    return entry


def tasks_label(first: str, count: int) -> str:
    """Return a short name of several tasks: `pong and 3 more tasks`."""
    others = count - 1
    return f"{first} and {others} more task{'s' if others > 1 else ''}" if others else first


Auto = Literal["auto"]
Positive = Annotated[int, Field(gt=0)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0)]
Threads = Annotated[int, Field(gt=0, le=1024)]
Envs = Annotated[int, Field(gt=0, le=100_000)]
Kwargs = Annotated[dict[str, Any], BeforeValidator(check_plain)]
Schedule = Annotated[Literal["constant", "linear", "cosine", "late"] | list[list[float]], BeforeValidator(check_points)]
# The validators also take a name alone, which the types do not show: the JSON Schema for editors has to.
NAME_OR_KEYS = {"anyOf": [{"type": "string"}, {"type": "object"}]}
CHAIN = {"anyOf": [{"type": "array", "items": NAME_OR_KEYS}, *NAME_OR_KEYS["anyOf"]]}
NAMES = {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}
Chain = Annotated[list[dict[str, Any]], BeforeValidator(as_chain), WithJsonSchema(CHAIN)]
Names = Annotated[list[str], BeforeValidator(as_list), WithJsonSchema(NAMES)]
