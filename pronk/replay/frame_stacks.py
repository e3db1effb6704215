"""Stacked frames stored once each: `buffer.py` keeps Atari's observations here.

A stack of S frames holds S - 1 of the frames of the step before. So a column is stored as a line of frames, in which
each row is a window of S, and where each row's window starts:

    rows       abcd  bcde  cdef | wxyz  xyzA          after the bar a new game began
    frames     a b c d e f w x y z A
    starts     0     1     2      6     7

A row that does not continue the one before it gets a window of its own. This is exact whatever the rows hold: if no row
continues another, all their frames are stored, and the pool has room for fewer columns.
"""

from __future__ import annotations

import numpy as np

from pronk.types import Array, ArraySpec

# Per column, on top of the T + S frames of a column without a new game. A new game adds S - 1 frames, so there may be
# one in every S - 1 columns, which is far more than any Atari game has.
SPARE_FRAMES = 1


class FramePool:
    """A ring of frames. Columns are written and overwritten in the same order; positions count all ever written."""

    def __init__(self, frames: Array, starts: Array, depth: int) -> None:
        """`frames` is [capacity, ...], `starts` [columns, T+1] int64: memory as `pool_specs` says. S is the `depth`."""
        self.frames, self.starts = frames, starts
        self._window = np.arange(depth)
        self.end = 0  # position after the newest frame

    def first_of(self, slot: int) -> int:
        """Return the position of a column's first frame."""
        return int(self.starts[slot, 0])

    def oldest_after(self, count: int) -> int:
        """Return the oldest position that is still there after writing so many frames."""
        return self.end + count - len(self.frames)

    def write(self, slot: int, stack: Array, is_new: Array) -> None:
        """Store a column [T+1, S, ...], with what `new_frames` returned for it. What it overwrites must be dropped."""
        count = int(np.count_nonzero(is_new))
        positions = np.arange(self.end, self.end + count) % len(self.frames)
        self.frames[positions] = stack[is_new]
        self.starts[slot] = self.end + np.cumsum(is_new.sum(axis=1)) - len(self._window)
        self.end += count

    def read(self, slots: Array, target: Array) -> None:
        """Rebuild columns into `target` [T+1, columns, S, ...]."""
        for column, slot in enumerate(slots):
            windows = (self.starts[slot][:, None] + self._window) % len(self.frames)
            target[:, column] = self.frames[windows]


def new_frames(stack: Array) -> Array:
    """Return which frames of a column [T+1, S, ...] are not in the row before it, [T+1, S] bool."""
    rows = len(stack)
    is_new = np.ones(stack.shape[:2], bool)
    is_same = stack[1:, :-1] == stack[:-1, 1:]
    is_new[1:, :-1] = ~is_same.reshape(rows - 1, -1).all(axis=1)[:, None]
    return is_new


def pool_specs(column: ArraySpec, columns: int) -> tuple[ArraySpec, ArraySpec]:
    """Return the arrays of a pool for so many columns of shape [T+1, S, ...]: frames and starts."""
    rows, depth, *frame = column.shape
    capacity = max(columns * (rows - 1 + depth + SPARE_FRAMES), rows * depth)
    return ArraySpec((capacity, *frame), column.dtype), ArraySpec((columns, rows), "int64")
