"""Memory that several processes share: without a name, so that nothing can be left behind."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import tempfile
import threading

import numpy as np

from pronk.layout import UnrollLayout
from pronk.types import Parameters, Unroll

HEADER = 64  # bytes before the two halves of the parameters: the version


class Slots:
    """One memory cut into places for one unroll each; a view is made when first asked for."""

    def __init__(self, memory: mmap.mmap, layout: UnrollLayout) -> None:
        self._whole, self._layout = memoryview(memory), layout
        self._views: dict[int, Unroll] = {}

    def block(self, slot: int) -> memoryview:
        """The bytes of a slot."""
        return self._whole[slot * self._layout.nbytes : (slot + 1) * self._layout.nbytes]

    def __getitem__(self, slot: int) -> Unroll:
        if slot not in self._views:
            self._views[slot] = self._layout.view(self.block(slot))
        return self._views[slot]


class ParameterExchange:
    """One writer, many readers, no lock: two halves and a version.

    The writer fills the half that is not current and then flips the version. A reader copies the current half and looks
    at the version again: if it moved meanwhile, the writer may have begun on the half just read, so it reads anew.
    """

    def __init__(self, memory: mmap.mmap, nbytes: int) -> None:
        self._flips = np.ndarray((1,), np.int64, memory)  # how often it was written; 0: never
        self._versions = np.ndarray((2,), np.int64, memory, offset=8)
        self._halves = np.ndarray((2, nbytes), np.uint8, memory, offset=HEADER)
        self._read_flips = 0
        self._latest = Parameters(-1, np.zeros(nbytes, np.uint8))

    def write(self, parameters: Parameters) -> None:
        """The only writer's."""
        flips = int(self._flips[0]) + 1
        self._halves[flips % 2] = parameters.block
        self._versions[flips % 2] = parameters.version
        fence()
        self._flips[0] = flips

    def read(self) -> Parameters:
        """The newest, copied into this process. The same object while nothing newer was written."""
        while (flips := int(self._flips[0])) != self._read_flips:
            self._latest.block[:] = self._halves[flips % 2]
            self._latest = Parameters(int(self._versions[flips % 2]), self._latest.block)
            self._read_flips = flips
            fence()
        return self._latest

    @property
    def version(self) -> int:
        """Of the newest."""
        return int(self._versions[int(self._flips[0]) % 2])


_fence = threading.Lock()


def fence() -> None:
    """Memory operations before it are seen before those after it, also by processors that reorder (ARM)."""
    for _ in range(2):  # a release followed by an acquire is what may not be crossed
        with _fence:
            pass


def anonymous_memory(nbytes: int) -> int:
    """A descriptor of memory without a name: it is gone when the last process that has it is gone."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("pronk")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, nbytes)
    return descriptor


def map_memory(descriptor: int) -> mmap.mmap:
    """The whole of it, readable and writable."""
    return mmap.mmap(descriptor, 0)


def keep_freed_memory() -> None:
    """For processes that send or receive large messages all the time: the C library gives such blocks back to the
    kernel at once, and getting them anew costs many times what filling them does."""
    largest_kept, kept = -3, -1  # glibc's names: M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
    with contextlib.suppress(OSError, AttributeError):  # another C library
        library = ctypes.CDLL(None)
        library.mallopt(largest_kept, 32 << 20)
        library.mallopt(kept, 1 << 30)
