"""Turns a validation error into one line a user can act on: the key, the value, and the nearest valid choice."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ValidationError

LONGEST_SHOWN = 200  # characters of a value in a message


def nearest(word: str, choices: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)`, or an empty string if no choice is similar."""
    close = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


def shown(value: Any) -> str:
    """Return a value as it is written, or the beginning of it."""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def explain_validation_error(error: ValidationError, model: type[BaseModel]) -> str:
    """One line for the first mistake, and how many more there are."""
    # Unknown keys first: a misspelt key that is required is also missing.
    errors = sorted(error.errors(), key=lambda mistake: mistake["type"] != "extra_forbidden")
    mistakes = {_explain(mistake, model): None for mistake in _without_union_branches(errors, model)}
    first, *more = mistakes
    return first + (f" (and {len(more)} more)" if more else "")


def _without_union_branches(errors: list[Any], model: type[BaseModel]) -> list[Any]:
    """One error per key: pydantic reports a union once for each of its branches."""
    seen: dict[tuple[str, ...], Any] = {}
    for mistake in errors:
        seen.setdefault(_key(mistake, model), mistake)
    return list(seen.values())


def _key(mistake: Any, model: type[BaseModel]) -> tuple[str, ...]:
    """The key of a mistake: its location as far as it names fields (beyond that are a union's branches)."""
    key: list[str] = []
    node: Any = model
    for part in mistake["loc"]:
        fields = getattr(node, "model_fields", {})
        if part not in fields and mistake["type"] != "extra_forbidden":
            break
        key.append(str(part))
        node = fields[part].annotation if part in fields else None
    return tuple(key)


def _explain(mistake: Any, model: type[BaseModel]) -> str:
    location = [str(part) for part in mistake["loc"]]
    if mistake["type"] == "extra_forbidden":
        return _explain_unknown_key(location, model)
    if mistake["type"] == "value_error":
        section = ".".join(_key(mistake, model))
        message = mistake["msg"].removeprefix("Value error, ")
        return f"{section}: {message}" if section else message
    key = ".".join(_key(mistake, model))
    value = mistake["input"]
    if mistake["type"] == "literal_error":
        choices = _choices(mistake)
        return f"{key}: {shown(value)} is not one of {', '.join(choices)}{nearest(str(value), choices)}"
    if mistake["type"] == "model_type":
        return f"{key}: expected keys below it, got {shown(value)}; write {key}.<key>=value"
    wanted = mistake["msg"].replace("Input should ", "must ", 1)
    return f"{key} {wanted[:1].lower()}{wanted[1:]}, got {shown(value)}{_hint(key, model)}"


def _choices(mistake: Any) -> list[str]:
    return [part.strip().strip("'") for part in mistake["ctx"]["expected"].replace(" or ", ",").split(",")]


def _explain_unknown_key(location: list[str], model: type[BaseModel]) -> str:
    key, parent = location[-1], model
    for part in location[:-1]:
        annotation = parent.model_fields[part].annotation
        assert isinstance(annotation, type)
        parent = annotation
    written, key = ".".join(location), SYNONYMS.get(key, key)
    if key in parent.model_fields:
        return f"unknown key {written} (did you mean {'.'.join([*location[:-1], key])!r}?)"
    for section, field in sorted(model.model_fields.items(), key=lambda item: item[0] != "run"):  # `seed` is run.seed
        if key in getattr(field.annotation, "model_fields", {}):
            return f"unknown key {written} (did you mean {f'{section}.{key}'!r}?)"
    near = difflib.get_close_matches(key, parent.model_fields, n=1, cutoff=0.5)
    if near:
        return f"unknown key {written} (did you mean {'.'.join([*location[:-1], near[0]])!r}?)"
    return f"unknown key {written}; valid here: {', '.join(parent.model_fields)}"


# What other systems call our keys.
SYNONYMS = {
    "gamma": "discount",
    "lr": "learning_rate",
    "num_envs": "envs",
    "num_actors": "count",
    "num_workers": "count",
    "rollout_length": "unroll_length",
    "n_steps": "unroll_length",
    "entropy_coef": "entropy_cost",
    "ent_coef": "entropy_cost",
    "vf_coef": "baseline_cost",
    "value_cost": "baseline_cost",
    "max_grad_norm": "max_gradient_norm",
    "grad_norm_clip": "max_gradient_norm",
    "gradients_clipping": "max_gradient_norm",
    "reward_clipping": "reward_clip",
    "total_timesteps": "total_steps",
}


def _hint(key: str, model: type[BaseModel]) -> str:
    """The default of a key, as an example of what fits."""
    try:
        node: Any = model()
    except ValidationError:  # a resolved configuration has no defaults
        return ""
    for part in key.split("."):
        node = getattr(node, part, None)
    return f" (default: {node})" if node is not None and not isinstance(node, BaseModel) else ""
