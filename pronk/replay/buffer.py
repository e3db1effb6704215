"""Replay: a ring of columns that were learnt from before, drawn again into later batches.

    Batcher --fresh columns + drawn ones--> Learner --after the update--> Replay.record (new columns, new priorities)

The IMPALA paper draws half of each batch uniformly from the last 10,000 trajectories. A column enters after its first
update: then its priority and the learner's values are known, and it cannot be drawn into the batch in which it is
fresh. Columns are stored completely, with the initial state of the core and the version. What is drawn is bit-identical
to what was recorded. Each learner has its own buffer, with the columns of its own actors.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from pronk.config import EnvConfig, ResolvedConfig
from pronk.layout import PER_ENVIRONMENT, with_columns
from pronk.replay.frame_stacks import FramePool, new_frames, pool_specs
from pronk.runs.atomic import atomic_file
from pronk.types import Array, ArraySpec, Unroll, leaves

FRAMES, STARTS = " frames", " starts"  # of a pool: appended to the path of the observation that it stores
BUFFER, VALUE, PRIORITY = "buffer state", "learner value", "learner priority"  # no field of an unroll has a blank
CHUNK = 2**24  # bytes that are read at a time
ENOUGH = 0.75  # of the columns asked for: if fewer are kept, that is reported
SMALLEST_PRIORITY = 1e-6  # so that a column without any error can still be drawn


def replayed_columns(config: ResolvedConfig) -> int:
    """Return how many columns are replayed in each batch, on top of the fresh ones. 0: replay is off."""
    if not config.replay.size:
        return 0
    fraction = config.replay.fraction
    return max(1, round(config.learner.batch_size * fraction / (1 - fraction)))


def stack_depths(env: EnvConfig) -> set[int]:
    """Return how many frames the configured environment may stack along the first axis of an image."""
    found = {env.atari.stack}
    for entry in [entry for task in env.each_task for entry in task.wrappers]:
        found |= {part for name, size in entry.items() if name == "stack" for part in sizes(size)}
    return found - {1}


def sizes(argument: Any) -> list[int]:
    """Return the numbers in a wrapper's argument, which is one number or a dict or list of them."""
    parts = argument.values() if isinstance(argument, dict) else argument if isinstance(argument, list) else [argument]
    return [part for part in parts if isinstance(part, int)]


def stored_specs(specs: Unroll, config: ResolvedConfig) -> dict[str, ArraySpec]:
    """Return every array of a learner's buffer by name: all the memory that it needs."""
    size, depths = config.replay.size, stack_depths(config.env)
    found: dict[str, ArraySpec] = {}
    for name, field in with_columns(specs, 1)._asdict().items():
        axis = 0 if name in PER_ENVIRONMENT else 1
        for path, spec in leaves(field, name):
            column = ArraySpec((*spec.shape[:axis], *spec.shape[axis + 1 :]), spec.dtype)
            if name == "observation" and is_frame_stack(column, depths):
                found[path + FRAMES], found[path + STARTS] = pool_specs(column, size)
            else:
                found[path] = column.batched(size)
    if config.replay.sampling == "prioritised":
        found[PRIORITY] = ArraySpec((size,), "float64")
    if config.replay.clone_value_cost:
        found[VALUE] = ArraySpec((size, *specs.first.shape[:1]), "float32")
    return found


def is_frame_stack(column: ArraySpec, depths: set[int]) -> bool:
    """Return whether the rows [T+1, S, H, W, ...] of a column are stacked images."""
    return column.dtype == "uint8" and len(column.shape) >= 4 and column.shape[1] in depths


def replay_nbytes(specs: Unroll, config: ResolvedConfig) -> int:
    """Return the memory of a learner's buffer in bytes."""
    if not config.replay.size:
        return 0
    return sum(spec.size * np.dtype(spec.dtype).itemsize for spec in stored_specs(specs, config).values())


class Replay:
    """The last `replay.size` columns of one learner, or fewer where stacked frames take more room than expected."""

    def __init__(self, specs: Unroll, config: ResolvedConfig, seed: np.random.SeedSequence) -> None:
        self._size, self.columns = config.replay.size, replayed_columns(config)
        self._random = np.random.default_rng(seed)
        # Zeros take no memory before something is written to them.
        self.arrays = {name: np.zeros(spec.shape, spec.dtype) for name, spec in stored_specs(specs, config).items()}
        self._priority, self._value = self.arrays.get(PRIORITY), self.arrays.get(VALUE)
        self._pools = {
            path: FramePool(self.arrays[path + FRAMES], self.arrays[path + STARTS], spec.shape[2])
            for path, spec in leaves(specs.observation, "observation")
            if path + FRAMES in self.arrays
        }
        self._oldest = self._end = 0  # columns are numbered as they come; column n is in slot n % size
        self._dropped = False  # whether a column was dropped early, for lack of room for frames

    def __len__(self) -> int:
        return self._end - self._oldest

    @property
    def shortage(self) -> str | None:
        """A message if frames take so much room that far fewer columns are kept than asked for, else None."""
        if not self._dropped or len(self) >= ENOUGH * self._size:
            return None
        return (
            f"replay keeps about {len(self):,} columns instead of {self._size:,}: successive observations share fewer "
            "frames than a stack of frames usually does"
        )

    def draw(self, target: Unroll) -> Array:
        """Overwrite every column of `target` with one that is drawn, with replacement; return their slots."""
        slots = self._chosen(target.version.shape[0])
        for path, array, axis in fields(target):
            if path in self._pools:
                self._pools[path].read(slots, array)
            else:
                array[...] = self.arrays[path].take(slots, 0).swapaxes(0, axis)
        return slots

    def values(self, slots: Array) -> Array | None:
        """Return the learner's values when these columns were fresh, [T+1, columns], if they are kept."""
        return None if self._value is None else self._value[slots].T

    def record(
        self, batch: Unroll, fresh: Array, drawn: Array | None, value: Array | None = None, error: Array | None = None
    ) -> None:
        """Take over the fresh columns of a batch that was learnt from, and the priorities of all.

        Args:
            batch: NumPy arrays; the columns that `draw` filled are its last.
            fresh: [B] bool.
            drawn: slots of the drawn columns, or None if there are none.
            value: [T+1, B] the learner's values; needed where the buffer keeps them.
            error: [B] how much each column has taught: its priority; needed where columns are drawn by it.
        """
        assert value is not None or self._value is None
        assert error is not None or self._priority is None
        if drawn is not None and self._priority is not None and error is not None:  # before a slot is overwritten
            self._priority[drawn] = error[-len(drawn) :] + SMALLEST_PRIORITY
        numbers = np.flatnonzero(fresh)[-self._size :]
        if not len(numbers):  # a further pass
            return
        filled = (self._end + np.arange(len(numbers))) % self._size
        columns, slots = as_slice(numbers), as_slice(filled)
        if self._priority is not None and error is not None:
            self._priority[slots] = error[columns] + SMALLEST_PRIORITY
        if self._value is not None and value is not None:
            self._value[slots] = value[:, columns].T
        stacks = []
        for path, array, axis in fields(batch):
            if path in self._pools:
                stacks.append((self._pools[path], array))
            else:
                self.arrays[path][slots] = array[(slice(None),) * axis + (columns,)].swapaxes(axis, 0)
        for slot, column in zip(filled, numbers, strict=True):
            self._oldest = max(self._oldest, self._end + 1 - self._size)
            for pool, array in stacks:
                is_new = new_frames(array[:, column])
                self._make_room(pool, int(np.count_nonzero(is_new)))
                pool.write(int(slot), array[:, column], is_new)
            self._end += 1

    def _make_room(self, pool: FramePool, frames: int) -> None:
        """Drop the oldest columns until none holds a frame that is about to be overwritten."""
        while len(self) and pool.first_of(self._oldest % self._size) < pool.oldest_after(frames):
            self._oldest += 1
            self._dropped = True

    def _chosen(self, count: int) -> Array:
        """Draw slots: each column alike, or in proportion to its priority."""
        assert len(self), "nothing to draw from"
        if self._priority is None:
            return (self._oldest + self._random.integers(len(self), size=count)) % self._size
        numbers = np.arange(self._oldest, self._end) % self._size
        shares = np.cumsum(self._priority[numbers])
        found = np.searchsorted(shares, self._random.random(count) * shares[-1], side="right")
        return numbers[np.minimum(found, len(self) - 1)]

    def save(self, path: Path) -> None:
        """Write all columns to a file, which is either complete or not there."""
        state = {
            "oldest": self._oldest,
            "end": self._end,
            "random": self._random.bit_generator.state,
            "pools": {name: pool.end for name, pool in self._pools.items()},
            "shapes": self._shapes(),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            arrays: dict[str, Any] = {BUFFER: np.array(json.dumps(state)), **self._used()}
            np.savez(file, **arrays)

    def load(self, path: Path, version: int) -> str | None:
        """Continue with what `save` wrote; return what is wrong with the file if it cannot be used.

        Columns that were played by weights newer than `version` are dropped: the buffer may have been saved later than
        the checkpoint that the run continues from.
        """
        try:
            with np.load(path, allow_pickle=False) as saved:
                state = json.loads(str(saved[BUFFER]))
                if state["shapes"] != self._shapes():
                    return "it was saved with other settings"
                for name, array in self.arrays.items():
                    read_into(array, saved, name)
        except FileNotFoundError:
            return "there is none"
        except Exception as error:  # a torn or foreign file can fail in any way
            return (str(error).splitlines() or [type(error).__name__])[0]
        self._random.bit_generator.state = state["random"]
        self._oldest, self._end = state["oldest"], state["end"]
        for name, pool in self._pools.items():
            pool.end = state["pools"][name]
        versions = self.arrays["version"][np.arange(self._oldest, self._end) % self._size]
        newer = np.flatnonzero(versions > version)
        if newer.size:
            self._end = self._oldest + int(newer[0])
        return None

    def _shapes(self) -> dict[str, Any]:
        return {name: [list(array.shape), str(array.dtype)] for name, array in self.arrays.items()}

    def _used(self) -> dict[str, Array]:
        """Return the arrays up to where anything was ever written."""
        used = dict.fromkeys(self.arrays, self._end)
        used |= {path + FRAMES: pool.end for path, pool in self._pools.items()}
        return {name: array[: used[name]] for name, array in self.arrays.items()}


def read_into(target: Array, saved: Any, name: str) -> None:
    """Overwrite the first rows of an array with those in a file of `numpy.savez`, without a copy of them in memory."""
    with saved.zip.open(f"{name}.npy") as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError(f"{name} has another format")
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
        if is_fortran or dtype != target.dtype or shape[1:] != target.shape[1:] or shape[0] > len(target):
            raise ValueError(f"{name} has another shape")
        content = target[: shape[0]].reshape(-1).view(np.uint8)
        for start in range(0, content.size, CHUNK):
            part = content[start : start + CHUNK]
            part[:] = np.frombuffer(file.read(part.size), np.uint8)
        if file.read(1):  # reaching the end also compares the checksum
            raise ValueError(f"{name} is longer than it should be")


def as_slice(numbers: Array) -> Array | slice:
    """Return consecutive numbers as a slice, with which NumPy copies once instead of twice; others as they are."""
    first, last = int(numbers[0]), int(numbers[-1])
    is_consecutive = last - first == len(numbers) - 1 and bool((np.diff(numbers) == 1).all())
    return slice(first, last + 1) if is_consecutive else numbers


def fields(unroll: Unroll) -> list[tuple[str, Array, int]]:
    """Return the arrays of an unroll with their paths, and which axis is that of the columns."""
    return [
        (path, array, 0 if name in PER_ENVIRONMENT else 1)
        for name, field in unroll._asdict().items()
        for path, array in leaves(field, name)
    ]


def describe_replay(config: ResolvedConfig, size: int, nbytes: int) -> str:
    """Describe in one line what a buffer of `size` columns holds and costs."""
    unit, power = ("GiB", 30) if nbytes >= 2**30 else ("MiB", 20)
    amount = math.ceil(nbytes / 2**power * 10) / 10
    return (
        f"replay: {replayed_columns(config)} columns on top of {config.learner.batch_size} fresh ones, from the last "
        f"{size:,} of {config.actors.unroll_length} steps ({amount:,.1f} {unit} of memory)"
    )
