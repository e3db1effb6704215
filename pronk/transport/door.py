"""The gateway's door: closes connections of addresses that only cost time, and drops their new ones for a while.

gRPC has no limit per address, and each call that it hands to Python costs more to refuse than to make. So an address
has an allowance of calls that bring no unroll. Beyond it, its connections are closed, except those that play, and the
kernel drops its new ones by a filter on the listening socket: for the gateway these cost nothing (Linux; elsewhere
connections are only closed). Connections without a call are closed when there are too many of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import ipaddress
import os
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import unquote

from pronk.transport.gateway_log import GatewayLog

ALLOWANCE = 200.0  # calls without an unroll that an address may make at once
ALLOWED_PER_SECOND = 10.0  # and in the long run
BLOCK_SECONDS = 5.0
MOST_BLOCKED = 256  # addresses at a time; the kernel's filter is as long as this list
MOST_COUNTED = 10_000  # addresses whose allowance is remembered
LISTED = next((folder for folder in ("/proc/self/fd", "/dev/fd") if os.path.isdir(folder)), None)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27  # of Linux; Python does not name them
# Classic BPF: instructions of the kernel's socket filters. Offsets count from the header of the IP packet.
LOAD_BYTE, LOAD_WORD, SHIFT_RIGHT, JUMP, JUMP_IF_EQUAL, RETURN = 0x30, 0x20, 0x74, 0x05, 0x15, 0x06
IP_HEADER = 0xFFF00000
KEEP_PACKET = (RETURN, 0, 0, 0xFFFFFFFF)
DROP_PACKET = (RETURN, 0, 0, 0)
INSTRUCTION = struct.Struct("HBBI")


class Door:
    """Counts what each address costs. With port 0 it closes nothing.

    `keep` returns the callers whose connections stay open in any case.
    """

    def __init__(self, port: int, most_idle: int, log: GatewayLog, keep: Callable[[], set[str]]) -> None:
        self._port, self._most_idle, self._log, self._keep = port, most_idle, log, keep
        self._calls: Counter[str] = Counter()  # open ones, by caller
        self._allowances: dict[Address, tuple[float, float]] = {}  # what was left, and when
        self._blocked: dict[Address, float] = {}  # until when
        self._idle_before: set[str] = set()

    def opened(self, caller: str) -> bool:
        """Note a new call; return whether it may be served. `caller` is gRPC's `kind:host:port`."""
        self._calls[caller] += 1
        return address_of(caller) not in self._blocked

    def closed(self, caller: str, useful: bool) -> None:
        """Note the end of a call. One that was of no use is taken off its address' allowance."""
        self._calls[caller] -= 1
        if not self._calls[caller]:
            del self._calls[caller]
        address = address_of(caller)
        if useful or not self._port or address in self._blocked:
            return
        now = time.monotonic()
        left, since = self._allowances.pop(address, (ALLOWANCE, now))
        left = min(ALLOWANCE, left + ALLOWED_PER_SECOND * (now - since)) - 1.0
        if len(self._allowances) >= MOST_COUNTED:
            del self._allowances[next(iter(self._allowances))]  # the one that was charged longest ago
        self._allowances[address] = left, now
        if left < 0:
            self._block([address], "too many calls without an unroll")

    def look(self) -> None:
        """Lift blocks that are over, and close idle connections if they are too many. Call it every second."""
        now = time.monotonic()
        over = [address for address, until in self._blocked.items() if until <= now]
        for address in over:
            del self._blocked[address]
        if over:
            self._set_filter()
        if self._port and LISTED and len(os.listdir(LISTED)) - len(self._calls) > self._most_idle:
            self._close_idle()
        else:
            self._idle_before.clear()

    def _close_idle(self) -> None:
        """Close what has been idle since the last look, of the addresses that have most of it."""
        idle = {caller for caller, _ in connections(self._port)} - set(self._calls)
        by_address = Counter(address_of(caller) for caller in idle & self._idle_before)
        self._idle_before = idle
        too_many, guilty = len(idle) - self._most_idle, []
        for address, count in by_address.most_common():
            if too_many <= 0:
                break
            guilty.append(address)
            too_many -= count
        if guilty:
            self._block(guilty, "too many connections without a call")

    def _block(self, addresses: list[Address], why: str) -> None:
        until = time.monotonic() + BLOCK_SECONDS
        for address in addresses[: MOST_BLOCKED - len(self._blocked)]:
            self._blocked[address] = until
            self._log.refused(str(address), "", f"{why}; it may connect again after {BLOCK_SECONDS:g} s")
        self._set_filter()
        kept, guilty = self._keep(), set(addresses)
        for caller, connection in connections(self._port):
            if address_of(caller) in guilty and caller not in kept:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)  # gRPC closes it then

    def _set_filter(self) -> None:
        if sys.platform != "linux":
            return
        program = b"".join(INSTRUCTION.pack(*each) for each in filter_against(self._blocked))
        buffer = ctypes.create_string_buffer(program, len(program))
        setting = struct.pack("HP", len(program) // INSTRUCTION.size, ctypes.addressof(buffer))
        for listener in listeners(self._port):
            with contextlib.suppress(OSError):  # a kernel without socket filters
                if self._blocked:
                    listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, setting)
                else:
                    listener.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)


@functools.lru_cache(maxsize=4096)
def address_of(caller: str) -> Address:
    """Return the address of gRPC's `ipv4:HOST:PORT` or `ipv6:%5BHOST%5D:PORT`; of IPv6 the first half, a network."""
    host = unquote(caller).partition(":")[2].rpartition(":")[0].strip("[]").partition("%")[0]
    found = ipaddress.ip_address(host)
    if isinstance(found, ipaddress.IPv6Address):
        return found.ipv4_mapped or ipaddress.IPv6Address(int(found) >> 64 << 64)
    return found


def filter_against(addresses: Iterable[Address]) -> list[tuple[int, int, int, int]]:
    """Return a socket filter that drops packets from these addresses."""
    version_4 = [(LOAD_WORD, 0, 0, IP_HEADER + 12)]
    version_6 = []
    for address in addresses:
        if isinstance(address, ipaddress.IPv4Address):
            version_4 += [(JUMP_IF_EQUAL, 0, 1, int(address)), DROP_PACKET]
            continue
        first, second = int(address) >> 96, int(address) >> 64 & 0xFFFFFFFF
        version_6 += [
            (LOAD_WORD, 0, 0, IP_HEADER + 8),
            (JUMP_IF_EQUAL, 0, 3, first),
            (LOAD_WORD, 0, 0, IP_HEADER + 12),
            (JUMP_IF_EQUAL, 0, 1, second),
            DROP_PACKET,
        ]
    version_4.append(KEEP_PACKET)
    return [
        (LOAD_BYTE, 0, 0, IP_HEADER),
        (SHIFT_RIGHT, 0, 0, 4),
        (JUMP_IF_EQUAL, 0, 1, 6),
        (JUMP, 0, 0, len(version_4)),
        *version_4,
        *version_6,
        KEEP_PACKET,
    ]


def sockets(port: int) -> Iterator[socket.socket]:
    """Yield a duplicate of each TCP socket of this process that is bound to the port; it is closed afterwards."""
    for name in os.listdir(LISTED) if LISTED else ():
        try:
            # gRPC may close the descriptor at any time. What is looked at is the duplicate, so it stays one socket.
            with socket.socket(fileno=os.dup(int(name))) as found:
                if found.family in (socket.AF_INET, socket.AF_INET6) and found.getsockname()[1] == port:
                    yield found
        except OSError:  # not a socket, or closed meanwhile
            continue


def listeners(port: int) -> Iterator[socket.socket]:
    """Yield the sockets that listen on the port."""
    return (one for one in sockets(port) if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def connections(port: int) -> Iterator[tuple[str, socket.socket]]:
    """Yield the connections to the port, each with its caller as gRPC writes it."""
    for one in sockets(port):
        with contextlib.suppress(OSError):  # it listens, or has ended
            yield caller_name(*one.getpeername()[:2]), one


def caller_name(host: str, port: int) -> str:
    """Return `host` and `port` as gRPC writes them."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None or address.version == 4:
        return f"ipv4:{mapped or address}:{port}"
    return f"ipv6:%5B{host}%5D:{port}"
