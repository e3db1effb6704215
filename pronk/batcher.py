"""Unrolls -> batches of the configured width on the device.

A batch is any number of columns: several unrolls side by side, or one unroll of many environments cut into several
batches, gone through `passes` times (`auto`: again and again until the next unrolls are there, within reason). Each is
one block of memory, so it reaches a GPU in a single copy, from pinned memory, while the GPU still works on the batch
before it (`prefetch`). On a CPU there is nothing to overlap, and staging ahead would only add lag.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pronk.config.section import Auto
from pronk.layout import Layout, UnrollLayout
from pronk.transport import LearnerPort
from pronk.types import Array, ArraySpec, Tree, Unroll, map_tree, map_unroll

MOST_PASSES = 8  # with passes=auto; the clipped loss gains little from more
# Fields whose first axis is the environment. Elsewhere it is time.
PER_ENVIRONMENT = ("state", "version", "task", "environment")


class Batch(NamedTuple):
    """The same columns twice: where the learner computes, and where the metrics read."""

    tensors: Unroll
    arrays: Unroll
    fresh: Array  # [B] bool: the column has not been learnt from before


class Stage:
    """Memory for one batch."""

    def __init__(self, layout: UnrollLayout, device: torch.device) -> None:
        self._pinned = device.type == "cuda"
        self._host = torch.zeros(layout.nbytes, dtype=torch.uint8, pin_memory=self._pinned)
        self.arrays = layout.view(self._host.numpy())
        self._device_block = torch.empty_like(self._host, device=device) if device.type != "cpu" else self._host
        self._tensors = Unroll(**tensor_views(layout, self._device_block))

    def batch(self, fresh: Array) -> Batch:
        """Send what was written to `arrays` on its way to the device."""
        if self._device_block is not self._host:
            self._device_block.copy_(self._host, non_blocking=self._pinned)
        return Batch(self._tensors, self.arrays, fresh)


class Batcher:
    """Takes unrolls from the port and gives batches of `batch_size` columns."""

    def __init__(
        self, port: LearnerPort, specs: Unroll, batch_size: int, device: torch.device, passes: int | Auto = 1
    ) -> None:
        envs = specs.version.shape[0]
        self._most_passes = MOST_PASSES if passes == "auto" else passes
        self._only_while_idle = passes == "auto"
        self._passes = self._most_passes  # through the newest stages: none is left before the first
        self._port, self._width = port, min(envs, batch_size)
        self._unrolls_per_batch, self._batches_per_unroll = max(1, batch_size // envs), max(1, envs // batch_size)
        layout = UnrollLayout(with_columns(specs, batch_size))
        # Two sets: one with the learner, one being filled.
        self._sets = deque([[Stage(layout, device) for _ in range(self._batches_per_unroll)] for _ in range(2)])
        self._ready: deque[tuple[Stage, Array]] = deque()
        self._prefetches = device.type != "cpu"

    def next(self) -> Batch:
        """Return the next batch: of a further pass, or of new unrolls, waiting for them where there are none."""
        if not self._ready:
            if self._passes < self._most_passes and not (self._only_while_idle and self._unrolls_are_there()):
                self._pass()
            else:
                self._stack()
        stage, fresh = self._ready.popleft()
        return stage.batch(fresh)

    def prefetch(self) -> None:
        """Stage the next batch if its unrolls are there, without waiting."""
        is_last_pass = self._only_while_idle or self._passes == self._most_passes
        if self._prefetches and not self._ready and is_last_pass and self._unrolls_are_there():
            self._stack()

    def _unrolls_are_there(self) -> bool:
        return self._port.waiting >= self._unrolls_per_batch

    def _stack(self) -> None:
        self._sets.rotate()
        with self._port.unrolls(self._unrolls_per_batch) as unrolls:
            for index, stage in enumerate(self._sets[0]):
                for position, unroll in enumerate(unrolls):
                    source = columns(unroll, index * self._width, self._width)
                    target = columns(stage.arrays, position * self._width, self._width)
                    map_unroll(np.copyto, target, source)
        self._passes = 0
        self._pass()

    def _pass(self) -> None:
        """Make the newest stages ready, for the first time or again."""
        fresh = np.full(self._width * self._unrolls_per_batch, self._passes == 0)
        self._ready.extend((stage, fresh) for stage in self._sets[0])
        self._passes += 1


def columns(unroll: Unroll, start: int, width: int) -> Unroll:
    """Views of some environments of an unroll."""
    chosen = slice(start, start + width)

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


def tensor_views(layout: Layout, block: Tensor) -> Tree:
    """Tensors over a block of bytes on any device, as `Layout.view` gives arrays."""

    def view(offset: int, spec: ArraySpec) -> Tensor:
        dtype = getattr(torch, spec.dtype)
        return block[offset : offset + spec.size * dtype.itemsize].view(dtype).view(spec.shape)

    return map_tree(view, layout.offsets, layout.specs)
