"""Shared memory without a name: the kernel frees it when the last process that maps it has ended in any way."""

from __future__ import annotations

import mmap
import os
import tempfile
import threading

import numpy as np

from pronk.layout import UnrollLayout
from pronk.types import Parameters, Unroll

HEADER = 64  # bytes before the two halves of the parameters: the version


class Slots:
    """Shared memory divided into slots of one unroll each. Views are made on first use."""

    def __init__(self, memory: mmap.mmap, layout: UnrollLayout) -> None:
        self._memory, self._layout = memoryview(memory), layout
        self._views: dict[int, Unroll] = {}

    def block(self, slot: int) -> memoryview:
        """Return the bytes of a slot."""
        return self._memory[slot * self._layout.nbytes : (slot + 1) * self._layout.nbytes]

    def __getitem__(self, slot: int) -> Unroll:
        if slot not in self._views:
            self._views[slot] = self._layout.view(self.block(slot))
        return self._views[slot]


class ParameterExchange:
    """One writer, many readers, no lock: two halves and a version.

    The writer fills the half that is not current, then flips the version. A reader copies the current half and checks
    the version again: if it changed, the writer may have started to overwrite the half just read, so it reads again.
    """

    def __init__(self, memory: mmap.mmap, nbytes: int) -> None:
        self._flips = np.ndarray((1,), np.int64, memory)  # how often it was written; 0: never
        self._versions = np.ndarray((2,), np.int64, memory, offset=8)
        self._halves = np.ndarray((2, nbytes), np.uint8, memory, offset=HEADER)
        self._read_flips = 0
        self._latest = Parameters(-1, np.zeros(nbytes, np.uint8))

    def write(self, parameters: Parameters) -> None:
        """Publish newer parameters. Only one process may call it."""
        flips = int(self._flips[0]) + 1
        self._halves[flips % 2] = parameters.block
        self._versions[flips % 2] = parameters.version
        fence()
        self._flips[0] = flips

    def read(self) -> Parameters:
        """Return the newest parameters, copied into this process; the same object until newer ones are written."""
        while (flips := int(self._flips[0])) != self._read_flips:
            self._latest.block[:] = self._halves[flips % 2]
            self._latest = Parameters(int(self._versions[flips % 2]), self._latest.block)
            self._read_flips = flips
            fence()
        return self._latest

    @property
    def version(self) -> int:
        """Version of the newest parameters."""
        while True:
            flips = int(self._flips[0])
            version = int(self._versions[flips % 2])
            fence()
            if int(self._flips[0]) == flips:  # else the writer may be overwriting this entry already
                return version


_fence = threading.Lock()


def fence() -> None:
    """Memory barrier: operations before it become visible before those after it, also on ARM, which reorders them."""
    for _ in range(2):  # no operation can move across a release followed by an acquire
        with _fence:
            pass


def anonymous_memory(nbytes: int) -> int:
    """Return a descriptor of new memory without a name."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("pronk")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, nbytes)
    return descriptor


def map_memory(descriptor: int) -> mmap.mmap:
    """Map all of it, readable and writable."""
    return mmap.mmap(descriptor, 0)
