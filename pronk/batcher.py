"""Unrolls -> batches of the configured width on the device.

A batch is any number of columns: several unrolls side by side, or one unroll of many environments cut into several
batches. Each is learnt from `passes` times (`idle`: until the next unrolls have arrived, at most MOST_PASSES times).

A batch is one block of memory, so it reaches a GPU in a single copy, from pinned memory, while the GPU still works on
the batch before it (`prefetch`). On a CPU there is nothing to overlap, and staging ahead would only add lag.

With replay, columns of earlier batches follow the others; every pass draws new ones.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pronk.layout import Layout, UnrollLayout, columns, with_columns
from pronk.pacing import Pacer
from pronk.replay import Replay
from pronk.transport import LearnerPort
from pronk.types import Array, ArraySpec, Tree, Unroll, map_tree, map_unroll

MOST_PASSES = 8  # with passes=idle; the clipped loss gains little from more


class Batch(NamedTuple):
    """The columns of one update, twice: as tensors on the learner's device, and as NumPy arrays for the metrics."""

    tensors: Unroll
    arrays: Unroll
    fresh: Array  # [B] bool: the column has not been learnt from before
    drawn: Array | None = None  # slots of the replayed columns, which are the last ones
    recorded: Tensor | None = None  # [T+1, replayed columns] values when these were fresh, where the buffer keeps them


class Stage:
    """Memory for one batch."""

    def __init__(self, layout: UnrollLayout, device: torch.device, starts: Iterable[int], width: int) -> None:
        """`starts` and `width`: the first columns of its `parts`, and how many columns each has."""
        self._device = device
        self._pinned = device.type == "cuda"
        self._host = torch.zeros(layout.nbytes, dtype=torch.uint8, pin_memory=self._pinned)
        self.arrays = layout.view(self._host.numpy())
        self.parts = [columns(self.arrays, start, width) for start in starts]
        """Views of the columns that come from one unroll each."""
        self._device_block = torch.empty_like(self._host, device=device) if device.type != "cpu" else self._host
        self._tensors = Unroll(**tensor_views(layout, self._device_block))

    def batch(self, fresh: Array, drawn: Array | None = None, recorded: Array | None = None) -> Batch:
        """Start copying `arrays` to the device, and return the batch."""
        if self._device_block is not self._host:
            self._device_block.copy_(self._host, non_blocking=self._pinned)
        values = None if recorded is None else torch.from_numpy(recorded).to(self._device)
        return Batch(self._tensors, self.arrays, fresh, drawn, values)


class Batcher:
    """Takes unrolls from the port and returns batches of `batch_size` columns, plus the replayed ones."""

    def __init__(
        self,
        port: LearnerPort,
        specs: Unroll,
        batch_size: int,
        device: torch.device,
        passes: int | Literal["idle"] = 1,
        replay: Replay | None = None,
    ) -> None:
        envs = specs.version.shape[0]
        self._most_passes = MOST_PASSES if passes == "idle" else passes
        self._only_while_idle = passes == "idle"
        self._passes = self._most_passes  # made over the newest stages; all of them, so that `next` fetches unrolls
        self._port, self._width = port, min(envs, batch_size)
        self._unrolls_per_batch, self._batches_per_unroll = max(1, batch_size // envs), max(1, envs // batch_size)
        self._specs, self._batch_size, self._device, self._replay = specs, batch_size, device, replay
        self._replayed = 0  # replayed columns that the stages have room for; 0 until there is something to replay
        self._sets = self._make_sets()
        self._ready: deque[tuple[Stage, Array]] = deque()
        self._prefetches = device.type != "cpu"
        updates = self._batches_per_unroll * self._most_passes
        self._pacer = Pacer(updates, lambda: max(1, port.room // self._unrolls_per_batch))
        self._paces = self._most_passes > 1 and not self._only_while_idle
        port.while_starving = self._pacer.give_all_back

    def next(self) -> Batch:
        """Return the next batch, of a further pass or of new unrolls. Waits if no unrolls have arrived."""
        if not self._ready:
            if self._passes < self._most_passes and not (self._only_while_idle and self._unrolls_are_there()):
                self._pass()
            else:
                self._stack()
        self._pacer.advance(len(self._ready) + (self._most_passes - self._passes) * self._batches_per_unroll)
        stage, fresh = self._ready.popleft()
        if self._replay is None or len(fresh) == self._batch_size:
            return stage.batch(fresh)
        drawn = self._replay.draw(columns(stage.arrays, self._batch_size, self._replay.columns))
        return stage.batch(fresh, drawn, self._replay.values(drawn))

    def prefetch(self) -> None:
        """Stage the next batch if its unrolls have arrived; never wait."""
        is_last_pass = self._only_while_idle or self._passes == self._most_passes
        if self._prefetches and not self._ready and is_last_pass and self._unrolls_are_there():
            self._stack()

    def _unrolls_are_there(self) -> bool:
        return self._port.waiting >= self._unrolls_per_batch

    def _make_sets(self) -> deque[list[Stage]]:
        """Return two sets of stages: one with the learner, one being filled."""
        layout = UnrollLayout(with_columns(self._specs, self._batch_size + self._replayed))
        parts = (range(0, self._batch_size, self._width), self._width)
        return deque([[Stage(layout, self._device, *parts) for _ in range(self._batches_per_unroll)] for _ in range(2)])

    def _stack(self) -> None:
        if self._replay is not None and len(self._replay) and not self._replayed:
            self._replayed = self._replay.columns
            self._sets = self._make_sets()
        self._sets.rotate()
        waited = self._paces and not self._unrolls_are_there()
        with contextlib.ExitStack() as taken:
            unrolls = taken.enter_context(self._port.unrolls(self._unrolls_per_batch))
            for index, stage in enumerate(self._sets[0]):
                for part, unroll in zip(stage.parts, unrolls, strict=True):
                    is_cut = self._batches_per_unroll > 1
                    source = columns(unroll, index * self._width, self._width) if is_cut else unroll
                    map_unroll(np.copyto, part, source)
            if self._paces:  # the unrolls are copied, but the pacer decides when their slots go back to the actors
                self._pacer.taken(taken.pop_all().close, waited)
        self._passes = 0
        self._pass()

    def _pass(self) -> None:
        """Make the newest stages ready, for the first time or again."""
        fresh = np.zeros(self._batch_size + self._replayed, bool)
        fresh[: self._batch_size] = self._passes == 0
        self._ready.extend((stage, fresh) for stage in self._sets[0])
        self._passes += 1


def tensor_views(layout: Layout, block: Tensor) -> Tree:
    """Tensors over a block of bytes on any device, as `Layout.view` gives arrays."""

    def view(offset: int, spec: ArraySpec) -> Tensor:
        dtype = getattr(torch, spec.dtype)
        return block[offset : offset + spec.size * dtype.itemsize].view(dtype).view(spec.shape)

    return map_tree(view, layout.offsets, layout.specs)
