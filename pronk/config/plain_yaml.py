"""YAML as people read it: `1e-3` is a number; no base 60 (`12:30`), no octal (`010`), no duplicate keys.

PyYAML follows YAML 1.1; these are the rules of YAML 1.2's core schema for numbers, for files and overrides alike.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

NUMBERS = {
    "tag:yaml.org,2002:int": (re.compile(r"^[-+]?(?:0|[1-9][0-9_]*)$"), "-+0123456789"),
    "tag:yaml.org,2002:float": (
        re.compile(r"^[-+]?(?:(?:\.\d+|\d[\d_]*(?:\.\d*)?)(?:[eE][-+]?\d+)?|\.inf|\.Inf)$|^\.nan$|^\.NaN$"),
        "-+0123456789.",
    ),
}


def _without_numbers(resolvers: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {first: [pair for pair in pairs if pair[0] not in NUMBERS] for first, pairs in resolvers.items()}


class Loader(yaml.SafeLoader):
    """Plain data only."""

    yaml_implicit_resolvers = _without_numbers(yaml.SafeLoader.yaml_implicit_resolvers)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse duplicate keys: one of the two values would be lost."""
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key!r}", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


class Dumper(yaml.SafeDumper):
    """Writes what `Loader` reads back unchanged."""

    yaml_implicit_resolvers = _without_numbers(yaml.SafeDumper.yaml_implicit_resolvers)


for _tag, (_pattern, _first) in NUMBERS.items():
    Loader.add_implicit_resolver(_tag, _pattern, list(_first))
    Dumper.add_implicit_resolver(_tag, _pattern, list(_first))


class FastLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The same rules for files that Pronk itself wrote: ten times as fast, less good at explaining mistakes."""

    yaml_implicit_resolvers = Loader.yaml_implicit_resolvers


def parse(text: str, loader: Any = Loader) -> Any:
    """The value of a YAML document."""
    return yaml.load(text, loader)


def dump(value: Any) -> str:
    """A YAML document that `parse` reads back."""
    return yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True)
