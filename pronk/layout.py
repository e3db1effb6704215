"""A tree of array specs <-> one block of bytes.

Everything that crosses a process boundary has a shape that is known before the run starts, so it travels as one
contiguous block: a slot of shared memory, a message on the network. `view` gives NumPy arrays into that block without
copying, and two processes that computed the same layout agree on `digest`.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np

from pronk.types import Array, ArraySpec, Tree, Unroll, leaves, map_tree

ALIGNMENT = 64  # bytes: a cache line, so that no two arrays share one
# Fields whose first axis is the environment. Elsewhere it is time.
PER_ENVIRONMENT = ("state", "version", "task", "environment")


class Layout:
    """Where each array of a tree of `ArraySpec` lies in a block of `nbytes` bytes."""

    def __init__(self, specs: Tree) -> None:
        self.specs = specs
        self.nbytes = 0
        self.offsets: Tree = map_tree(self._place, specs)

    def _place(self, spec: ArraySpec) -> int:
        offset = self.nbytes
        self.nbytes += -(-spec.size * np.dtype(spec.dtype).itemsize // ALIGNMENT) * ALIGNMENT
        return offset

    def view(self, block: Any) -> Tree:
        """Arrays over a buffer of at least `nbytes` bytes; writing to them writes to the buffer."""
        return map_tree(
            lambda offset, spec: np.ndarray(spec.shape, spec.dtype, buffer=block, offset=offset),
            self.offsets,
            self.specs,
        )

    @property
    def digest(self) -> str:
        """Equal for two layouts exactly if every array has the same path, shape, dtype and offset."""
        return hashlib.sha256(repr((self.specs, self.offsets)).encode()).hexdigest()[:16]

    def plain(self) -> Tree:
        """The specs as plain data, for another process; `specs_from_plain` reads them back."""
        return map_tree(lambda spec: [list(spec.shape), spec.dtype, list(spec.categories), spec.words], self.specs)

    def difference(self, other: Layout) -> str:
        """Describe the first array that is not the same in the other layout."""
        ours, theirs = dict(leaves(self.specs)), dict(leaves(other.specs))
        for name in {**ours, **theirs}:
            if ours.get(name) != theirs.get(name):
                return f"{name} is {describe(ours.get(name))} here and {describe(theirs.get(name))} there"
        return "nothing"


def describe(spec: ArraySpec | None) -> str:
    """An array in a few words."""
    if spec is None:
        return "missing"
    classes = f" of {spec.categories} classes" if spec.categories else ""
    words = f" of {spec.words} words" if spec.words else ""
    return f"{spec.dtype}{list(spec.shape)}{classes}{words}"


class UnrollLayout(Layout):
    """The layout of an `Unroll`."""

    def __init__(self, specs: Unroll) -> None:
        super().__init__(specs._asdict())

    @classmethod
    def from_plain(cls, tree: Tree) -> UnrollLayout:
        """Read back what `plain` returned."""
        return cls(Unroll(**specs_from_plain(tree)))

    def view(self, block: Any) -> Unroll:
        """An unroll whose arrays lie in the buffer."""
        return Unroll(**super().view(block))

    def allocate(self) -> Unroll:
        """An unroll in memory of its own."""
        return self.view(np.zeros(self.nbytes, np.uint8))


def columns(unroll: Unroll, start: int, width: int) -> Unroll:
    """Views of some environments of an unroll."""
    return chosen_columns(unroll, slice(start, start + width))


def chosen_columns(unroll: Unroll, chosen: slice | Array) -> Unroll:
    """Some environments of an unroll, by a slice (views) or by their indices (copies)."""

    def cut(name: str, field: Tree) -> Tree:
        index = chosen if name in PER_ENVIRONMENT else (slice(None), chosen)
        return map_tree(lambda array: array[index], field)

    return Unroll(**{name: cut(name, field) for name, field in unroll._asdict().items()})


def with_columns(specs: Unroll, count: int) -> Unroll:
    """The specs of an unroll with another number of environments."""

    def widen(name: str, field: Tree) -> Tree:
        axis = 0 if name in PER_ENVIRONMENT else 1
        return map_tree(
            lambda spec: replace(spec, shape=(*spec.shape[:axis], count, *spec.shape[axis + 1 :])),
            field,
        )

    return Unroll(**{name: widen(name, field) for name, field in specs._asdict().items()})


def specs_from_plain(tree: Tree) -> Tree:
    """Return the specs that `Layout.plain` was made from."""
    if isinstance(tree, dict):
        return {key: specs_from_plain(part) for key, part in tree.items()}
    shape, dtype, categories, words = tree
    return ArraySpec(tuple(map(int, shape)), str(dtype), tuple(map(int, categories)), int(words))
