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
OTHER_BREAKS = set("\x85\u2028\u2029")
DEEPEST = 50
FAST_LENGTH = 16_000  # characters: libyaml overflows its stack where a longer text is nested tens of thousands deep
MOST_VALUES = 100_000
MOST_CHARACTERS = 2_000_000  # a few seconds of PyYAML


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

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Escape the breaks that YAML 1.1 has besides the newline: written as they are, they are read as spaces."""
        return self.represent_scalar("tag:yaml.org,2002:str", text, style='"' if OTHER_BREAKS & set(text) else None)


Dumper.add_representer(str, Dumper.represent_text)
for _tag, (_pattern, _first) in NUMBERS.items():
    Loader.add_implicit_resolver(_tag, _pattern, list(_first))
    Dumper.add_implicit_resolver(_tag, _pattern, list(_first))


class FastLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The same rules for numbers, for files that Pronk itself wrote. Ten times as fast; accepts duplicate keys."""

    yaml_implicit_resolvers = Loader.yaml_implicit_resolvers


def parse(text: str, loader: Any = Loader) -> Any:
    """Return the value of a YAML document.

    Raises:
        yaml.YAMLError: for everything that is not plain data of a reasonable size.
    """
    if len(text) > MOST_CHARACTERS:
        raise yaml.YAMLError(f"it has more than {MOST_CHARACTERS:,} characters")
    if len(text) > FAST_LENGTH:
        loader = Loader
    try:
        value = yaml.load(text, loader)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:  # 2024-02-30, !!int abc, ...
        raise yaml.YAMLError(str(error)) from None
    check_size(value)
    return value


def check_size(value: Any) -> None:
    """Refuse values that contain themselves (`&a [*a]`), or that aliases of aliases expand to an enormous size."""
    level, values = [value], 0
    for _ in range(DEEPEST):
        level = [part for one in level if isinstance(one, dict | list) for part in parts(one)]
        values += len(level)
        if not level:
            return
        if values > MOST_VALUES:
            raise yaml.YAMLError(f"it has more than {MOST_VALUES:,} values")
    raise yaml.YAMLError(f"it is nested more than {DEEPEST} levels deep, or contains itself")


def parts(value: dict[Any, Any] | list[Any]) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value


def dump(value: Any) -> str:
    """A YAML document that `parse` reads back."""
    return yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True)
