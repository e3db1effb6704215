"""Every knob with its meaning, default and values: for `pronk explain`, shell completion, the docs and YAML editors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from pronk.config.config import Config
from pronk.config.errors import SYNONYMS, nearest
from pronk.config.loading import WITHOUT_GPU
from pronk.types import UserError


@dataclass(frozen=True)
class Knob:
    """One `section.key`."""

    path: str
    meaning: str
    default: Any
    values: str
    """What it takes, in words: `a whole number, at least 1; or auto`."""
    choices: tuple[str, ...] = ()
    """If it takes only certain words."""


def knobs() -> list[Knob]:
    """Return every knob of a configuration, in the order of its sections."""
    return list(_knobs_of(Config, ""))


def sections() -> dict[str, str]:
    """Return the sections of a configuration, and what each is about."""
    return {
        name: " ".join((field.annotation.__doc__ or "").split())
        for name, field in Config.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }


def find_knobs(name: str) -> list[Knob]:
    """Return the knob called `section.key`, those of a section, or those whose key it is in any section.

    Raises UserError with the nearest name if there is none.
    """
    everything = knobs()
    name = SYNONYMS.get(name, name)
    found = (
        [knob for knob in everything if knob.path == name]
        or [knob for knob in everything if knob.path.startswith(f"{name}.")]
        or [knob for knob in everything if knob.path.endswith(f".{name}")]
    )
    if not found:
        names = [*sections(), *(knob.path for knob in everything), *(knob.path.split(".")[-1] for knob in everything)]
        raise UserError(f"no setting {name!r}{nearest(name, names)}; there are the sections {', '.join(sections())}")
    return found


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a configuration file, for editors that check and complete YAML."""
    made = Config.model_json_schema()
    made["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    made["title"] = "A Pronk configuration"
    made["description"] = "What `pronk train FILE.yaml` takes. Everything that a file leaves out has its default."
    sections_of = {name: made["properties"][name] for name in sections()}
    made["properties"]["base"] = {"type": "string", "description": "A preset or file that this one builds on."}
    made["properties"][WITHOUT_GPU] = {
        "type": "object",
        "description": "Settings that replace the others on a machine without a GPU.",
        "properties": sections_of,
        "additionalProperties": False,
    }
    return made


def _knobs_of(model: type[BaseModel], prefix: str) -> Iterator[Knob]:
    described = model.model_json_schema()["properties"]
    for name, field in model.model_fields.items():
        path, kind = f"{prefix}{name}", field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _knobs_of(kind, f"{path}.")
        elif prefix:  # at the top level there is only the description
            one = described[name]
            meaning = " ".join((field.description or "").split())
            yield Knob(path, meaning, field.get_default(call_default_factory=True), in_words(one), choices_of(one))


def in_words(described: dict[str, Any]) -> str:
    """Return what a JSON Schema allows, in words."""
    if "anyOf" in described:
        return "; or ".join(in_words(part) for part in described["anyOf"])
    if "enum" in described:
        several = "one of " if len(described["enum"]) > 1 else ""
        return several + ", ".join(map(str, described["enum"]))
    if "const" in described:
        return str(described["const"])
    kind = described.get("type")
    if kind in ("integer", "number"):
        return ", ".join(["a whole number" if kind == "integer" else "a number", *_bounds(described)])
    named = {
        "boolean": "true or false",
        "null": "null",
        "string": "a text",
        "array": "a list",
        "object": "keys below it",
    }
    return named.get(str(kind), "any value")


def _bounds(described: dict[str, Any]) -> list[str]:
    words = {
        "minimum": "at least",
        "exclusiveMinimum": "above",
        "maximum": "at most",
        "exclusiveMaximum": "below",
    }
    limits = {key: described[key] for key in words if key in described}
    # Some versions of pydantic write whole numbers as 0.0.
    return [f"{words[key]} {int(limit) if limit == int(limit) else limit:,}" for key, limit in limits.items()]


def choices_of(described: dict[str, Any]) -> tuple[str, ...]:
    """Return the words that a JSON Schema allows; empty if it also allows something else."""
    if "anyOf" in described:
        parts = [choices_of(part) for part in described["anyOf"]]
        return tuple(word for part in parts for word in part) if all(parts) else ()
    if "enum" in described:
        return tuple(map(str, described["enum"]))
    if "const" in described:
        return (str(described["const"]),)
    return ("true", "false") if described.get("type") == "boolean" else ()
