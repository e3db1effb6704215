"""A link between two network namespaces that loses, reorders, duplicates and corrupts packets.

    namespace 0                        this program                        namespace 1
    10.77.0.1 --packets--> TUN --> what happens to each packet --> TUN --packets--> 10.77.0.2, and back

`tc netem` does the same where the kernel has it, which those of many clouds and containers have not. TUN devices are
nearly everywhere. The addresses exist inside the namespaces only, and no packet leaves them.

`Link` starts this file as a program. Both need root, or its rights within a container.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import itertools
import json
import os
import random
import select
import shutil
import socket
import struct
import subprocess
import sys
import time
from typing import Any

NEW_NETWORK = 0x40000000  # CLONE_NEWNET
SET_TUN, TUN_WITHOUT_HEADER = 0x400454CA, 0x1001  # TUNSETIFF; IFF_TUN | IFF_NO_PI
SET_FLAGS, SET_ADDRESS, SET_NETMASK, UP = 0x8914, 0x8916, 0x891C, 0x1
LONGEST_PACKET = 1 << 16
ADDRESSES = ("10.77.0.1", "10.77.0.2")
LATE_SECONDS = (0.005, 0.05)  # of a packet that others overtake
DELAY_SECONDS = 0.001  # of every packet
FAULTS = ("loss", "loss from 0", "loss from 1", "reorder", "duplicate", "corrupt")


class NoLink(Exception):  # noqa: N818 - a reason to skip
    """This machine does not allow namespaces or TUN devices."""


class Link:
    """The program as a `with` block."""

    def __init__(self, seed: int) -> None:
        """Start it. Raises `NoLink` with the reason if that is not possible here."""
        if sys.platform != "linux" or shutil.which("nsenter") is None:
            raise NoLink("nsenter of Linux is not installed")
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        assert self._process.stderr
        answer = self._process.stdout.readline()
        if not answer:
            reason = (self._process.stderr.read().splitlines() or ["it ended"])[-1]
            self.__exit__()
            raise NoLink(reason)
        self._namespaces = json.loads(answer)

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def within(self, side: int) -> tuple[str, ...]:
        """Return the beginning of a command that is to run in a namespace, 0 or 1."""
        return ("nsenter", f"--net=/proc/{self._process.pid}/fd/{self._namespaces[side]}", "--")

    def set(self, **probabilities: float) -> dict[str, int]:
        """Do to packets what FAULTS lists, with these probabilities, and nothing else. Return the counts until now."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(probabilities) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


class Fate:
    """Decides what happens to packets, and counts it."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.probabilities: dict[str, float] = {}
        self.counts = dict.fromkeys(("packets", *FAULTS), 0)

    def of(self, packet: bytes, source: int) -> list[tuple[float, bytes]]:
        """Return what arrives instead of a packet from namespace 0 or 1: each with its delay in seconds."""
        self.counts["packets"] += 1
        if self._happens("loss") or self._happens(f"loss from {source}"):
            return []
        if self._happens("corrupt"):
            changed = bytearray(packet)
            changed[self._chance.randrange(len(packet))] ^= 1 << self._chance.randrange(8)
            packet = bytes(changed)
        late = self._chance.uniform(*LATE_SECONDS) if self._happens("reorder") else 0.0
        arrives = [(DELAY_SECONDS + late, packet)]
        if self._happens("duplicate"):
            arrives.append((DELAY_SECONDS + self._chance.uniform(*LATE_SECONDS), packet))
        return arrives

    def _happens(self, fault: str) -> bool:
        happens = self._chance.random() < self.probabilities.get(fault, 0.0)
        self.counts[fault] += happens
        return happens


def make_namespace(address: str) -> tuple[int, int]:
    """Move this process to a new namespace with a TUN device. Return descriptors of both."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), f"no new network namespace: {os.strerror(ctypes.get_errno())}")
    namespace, tun = os.open("/proc/self/ns/net", os.O_RDONLY), os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tun, SET_TUN, struct.pack("16sH22x", b"link", TUN_WITHOUT_HEADER))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for request, value in ((SET_ADDRESS, address), (SET_NETMASK, "255.255.255.0")):
            value = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(value))
            fcntl.ioctl(control, request, struct.pack("16s16s8x", b"link", value))
        for name in (b"link", b"lo"):
            fcntl.ioctl(control, SET_FLAGS, struct.pack("16sH22x", name, UP))
    return namespace, tun


def forward(tuns: list[int], fate: Fate) -> None:
    """Pass packets on until the standard input ends; each of its lines sets the probabilities."""
    on_the_way: list[tuple[float, int, int, bytes]] = []
    numbers = itertools.count()  # equal times stay in order
    while True:
        pause = max(0.0, on_the_way[0][0] - time.monotonic()) if on_the_way else None
        for ready in select.select([*tuns, 0], [], [], pause)[0]:
            if ready == 0:
                line = sys.stdin.readline()
                if not line:
                    return
                print(json.dumps(fate.counts), flush=True)
                fate.probabilities, fate.counts = json.loads(line), dict.fromkeys(fate.counts, 0)
                continue
            source = tuns.index(ready)
            for delay, packet in fate.of(os.read(ready, LONGEST_PACKET), source):
                heapq.heappush(on_the_way, (time.monotonic() + delay, next(numbers), tuns[1 - source], packet))
        while on_the_way and on_the_way[0][0] <= time.monotonic():
            _, _, target, packet = heapq.heappop(on_the_way)
            with contextlib.suppress(OSError):  # corrupted so that it is no packet any more
                os.write(target, packet)


def main() -> None:
    """Make the namespaces, tell their descriptors, and forward."""
    ends: list[Any] = [make_namespace(address) for address in ADDRESSES]
    print(json.dumps([namespace for namespace, _ in ends]), flush=True)
    forward([tun for _, tun in ends], Fate(int(sys.argv[1])))


if __name__ == "__main__":
    main()
