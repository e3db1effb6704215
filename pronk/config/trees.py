"""Plain data, as read from YAML: dicts of dicts, with paths such as `section.key`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Tree = dict[str, Any]
MISSING = object()

# What `section=value` means: `transport=local` is short for `transport.name=local`.
SHORTHAND = {
    **dict.fromkeys(["network", "loss", "optimiser", "transport", "cluster"], "name"),
    **{"env": "id", "learners": "count", "evaluation": "enabled"},
    "launch": "name",  # the old name of `cluster`; see renamed.py
}


def assign(tree: Tree, path: str, value: Any) -> None:
    """Set the value at a path, in place, making the sections that are missing."""
    keys = path.split(".")
    if keys[0] in SHORTHAND and len(keys) == 1 and not isinstance(value, dict):
        keys.append(SHORTHAND[keys[0]])
    for key in keys[:-1]:
        node = tree.get(key)
        if not isinstance(node, dict):
            node = tree[key] = {}
        tree = node
    tree[keys[-1]] = value


def merged(base: Tree, changes: Tree) -> Tree:
    """Return `base` with `changes` on top, section by section."""
    both = {key for key in changes if isinstance(changes[key], dict) and isinstance(base.get(key), dict)}
    return {**base, **changes, **{key: merged(base[key], changes[key]) for key in both}}


def pop(tree: Tree, path: str) -> tuple[Tree, Any]:
    """Return the tree without the value at a path, and the value, or MISSING."""
    key, _, rest = path.partition(".")
    if key not in tree:
        return tree, MISSING
    without = {other: value for other, value in tree.items() if other != key}
    if not rest:
        return without, tree[key]
    if not isinstance(tree[key], dict):
        return tree, MISSING
    inner, value = pop(tree[key], rest)
    return {**without, key: inner}, value


def flat(tree: Tree, prefix: str = "") -> dict[str, Any]:
    """Return {`section.key`: value} of every value that is not a section; an empty dict is a value."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        path = f"{prefix}.{key}" if prefix else str(key)
        found |= flat(value, path) if isinstance(value, dict) and value else {path: value}
    return found


def strings_in(tree: Any) -> Iterator[str]:
    """Yield every string of a tree, keys included."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict):
        for part in (*tree.keys(), *tree.values()):
            yield from strings_in(part)
    elif isinstance(tree, list):
        for part in tree:
            yield from strings_in(part)
