"""Rate limits of the gateway, per client address: closes connections that only cost time, and drops new ones.

gRPC has no limit per address, and each call that it hands to Python costs more to refuse than to make. So an address
has an allowance of calls that bring no unroll, and one of connections. Beyond it, its connections are closed, except
those that play, and for a while the kernel drops new ones by a filter on the listening socket: these cost the gateway
nothing (Linux; elsewhere connections are only closed).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import ipaddress
import os
import socket
import stat
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import unquote

from pronk.transport.frames import MAX_JSON_BYTES
from pronk.transport.gateway_log import GatewayLog

CALLS_AT_ONCE = 200.0  # that an address may make without sending an unroll
ALLOWED_PER_SECOND = 10.0  # in the long run; the same for connections
BLOCK_SECONDS = 5.0  # doubled each time the address has to be blocked again soon
LONGEST_BLOCK_SECONDS = 40.0
# Bytes between two checks, over a connection that does not play. More than MAX_JSON_BYTES, so that a client that sends
# a single message that is too large gets the reason instead.
MOST_RECEIVED = 4 * MAX_JSON_BYTES
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
BYTES_RECEIVED = struct.Struct("=128xQ")  # in Linux's struct tcp_info


class Allowances:
    """What each address may still do: `at_once`, and ALLOWED_PER_SECOND more every second (a token bucket)."""

    def __init__(self, at_once: float) -> None:
        self._at_once = at_once
        self._left: dict[Address, tuple[float, float]] = {}  # what was left, and when

    def charge(self, address: Address, count: float) -> bool:
        """Take `count` off the allowance of an address. Return whether it had as much."""
        now = time.monotonic()
        left, since = self._left.pop(address, (self._at_once, now))
        if len(self._left) >= MOST_COUNTED:
            del self._left[next(iter(self._left))]  # the one that was charged longest ago
        left = min(self._at_once, left + ALLOWED_PER_SECOND * (now - since)) - count
        self._left[address] = max(0.0, left), now
        return left >= 0


class Door:
    """Counts what each address costs. With port 0 it closes nothing.

    `most_idle` connections may have no call; an address may open as many at once. `keep` returns the callers whose
    connections stay open in any case.
    """

    def __init__(self, port: int, most_idle: int, log: GatewayLog, keep: Callable[[], set[str]]) -> None:
        self._port, self._most_idle, self._log, self._keep = port, most_idle, log, keep
        self._calls: Counter[str] = Counter()  # open ones, by caller
        self._useless_calls, self._new_connections = Allowances(CALLS_AT_ONCE), Allowances(most_idle)
        self._blocked: dict[Address, float] = {}  # until when
        self._last_blocks: dict[Address, tuple[float, float]] = {}  # seconds, and until when
        self._other_descriptors = 0
        self._idle: set[str] = set()  # callers without a call, at the last check
        self._received: dict[str, int] = {}  # bytes, over connections that did not play at the last check
        self._connected = 0  # connections that gRPC had logged, at the last check

    def opened(self, caller: str) -> bool:
        """Note a new call; return whether it may be served. `caller` is gRPC's `kind:host:port`."""
        self._calls[caller] += 1
        return address_of(caller) not in self._blocked

    def closed(self, caller: str, useful: bool) -> None:
        """Note the end of a call. One that was not useful is taken off the allowance of its address."""
        self._calls[caller] -= 1
        if not self._calls[caller]:
            del self._calls[caller]
        address = address_of(caller)
        if useful or not self._port or address in self._blocked:
            return
        if not self._useless_calls.charge(address, 1.0):
            self._block({address}, "too many calls without an unroll")

    def look(self) -> None:
        """Lift blocks that are over, and check for connections that only cost time. Call it several times a second."""
        now = time.monotonic()
        over = [address for address, until in self._blocked.items() if until <= now]
        for address in over:
            del self._blocked[address]
        if over:
            self._set_filter()
        if not self._port:
            return
        count, kept = len(descriptors()), self._keep()
        if not count:
            return
        if count > self._other_descriptors + len(kept):
            self._look_at_connections(count, kept)
        else:
            # Other descriptors may have been closed since: as many connections would go unnoticed otherwise.
            self._other_descriptors = count - len(kept)
            self._idle, self._received, self._connected = set(), {}, self._log.connected

    def _look_at_connections(self, count: int, kept: set[str]) -> None:
        received = {caller: bytes_received(one) for caller, one in connections(self._port)}
        self._other_descriptors = count - len(received)
        for caller in kept & received.keys():
            del received[caller]
        before, self._received = self._received, received
        floods = {caller for caller in received if received[caller] - before.get(caller, 1 << 62) > MOST_RECEIVED}
        idle = received.keys() - self._calls.keys()
        idle_before, self._idle = self._idle, idle
        self._block(self._who_connects_too_often(idle - idle_before), "too many new connections")
        self._block(self._who_has_too_many(idle, idle_before), "too many connections without a call")
        self._block({address_of(caller) for caller in floods}, "too much data from who does not play")

    def _who_connects_too_often(self, new: set[str]) -> set[Address]:
        """Return the addresses with too many new connections.

        gRPC logs how many connections there were, but not from where, and many are gone already. So each new one that
        is still open is charged for its share of all of them.
        """
        connected, self._connected = self._log.connected - self._connected, self._log.connected
        each = max(1.0, connected / max(1, len(new)))
        counts = Counter(address_of(caller) for caller in new)
        return {address for address, count in counts.items() if not self._new_connections.charge(address, each * count)}

    def _who_has_too_many(self, idle: set[str], idle_before: set[str]) -> set[Address]:
        """Return the addresses with most connections that were idle before, too, if there are too many in all."""
        too_many, found = len(idle) - self._most_idle, set()
        for address, count in Counter(address_of(caller) for caller in idle & idle_before).most_common():
            if too_many > 0:
                found.add(address)
                too_many -= count
        return found

    def _block(self, addresses: set[Address], why: str) -> None:
        addresses = addresses - self._blocked.keys()
        if not addresses:
            return
        for address in sorted(addresses, key=int)[: MOST_BLOCKED - len(self._blocked)]:
            self._blocked[address] = time.monotonic() + self._block_seconds(address)
            self._log.refused(str(address), "", f"{why}; its new connections are dropped for a while")
        self._set_filter()
        kept = self._keep()
        for caller, connection in connections(self._port):
            if address_of(caller) in addresses and caller not in kept:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)  # gRPC closes it then

    def _block_seconds(self, address: Address) -> float:
        seconds, until = self._last_blocks.pop(address, (0.0, 0.0))
        again = time.monotonic() - until < LONGEST_BLOCK_SECONDS
        seconds = min(LONGEST_BLOCK_SECONDS, 2 * seconds) if again and seconds else BLOCK_SECONDS
        if len(self._last_blocks) >= MOST_COUNTED:
            del self._last_blocks[next(iter(self._last_blocks))]
        self._last_blocks[address] = seconds, time.monotonic() + seconds
        return seconds

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


def descriptors() -> list[str]:
    """Return this process's descriptors; an empty list where they are not listed, or cannot be at this moment."""
    try:
        return os.listdir(LISTED) if LISTED else []
    except OSError:  # a flood has used up all descriptors, and listing needs one: a later look may have it
        return []


def sockets(port: int) -> Iterator[socket.socket]:
    """Yield a duplicate of each TCP socket of this process that is bound to the port; it is closed afterwards."""
    for name in descriptors():
        # gRPC may close the descriptor at any time, and its number may be reused. A duplicate stays the same socket.
        with contextlib.suppress(OSError), contextlib.ExitStack() as opened:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            duplicate = os.dup(int(name))
            opened.callback(os.close, duplicate)
            found = socket.socket(fileno=duplicate)
            opened.pop_all()
            opened.enter_context(found)
            if found.family in (socket.AF_INET, socket.AF_INET6) and found.getsockname()[1] == port:
                yield found


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
    host = host.removeprefix("::ffff:")
    return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"


def bytes_received(one: socket.socket) -> int:
    """Return how many bytes have come over a connection; 0 where the system does not count them (not Linux)."""
    if sys.platform != "linux":
        return 0
    information = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, BYTES_RECEIVED.size)
    return BYTES_RECEIVED.unpack(information)[0] if len(information) == BYTES_RECEIVED.size else 0
