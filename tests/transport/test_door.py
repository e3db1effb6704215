"""An address that only costs time is shut out; who plays there, and everybody elsewhere, does not notice."""

import contextlib
import ctypes
import errno
import os
import select
import socket
import struct
import sys
from types import SimpleNamespace

import pytest
from test_gateway import send, take, until
from through_grpc import gateway

from pronk.actors.gateway_process import sort_lines
from pronk.transport.door import (
    INSTRUCTION,
    KEEP_PACKET,
    SO_ATTACH_FILTER,
    Allowances,
    Door,
    address_of,
    caller_name,
    connections,
    sockets,
)
from pronk.transport.gateway_log import GatewayLog
from pronk.transport.grpc_actor import LearnerUnavailable
from pronk.transport.security import Credentials
from pronk.types import UserError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the filter is Linux's")
STRANGER = "127.0.0.66"


def may_filter():
    """Whether the kernel lets this user attach a filter to a socket: some let only root."""
    keep = ctypes.create_string_buffer(INSTRUCTION.pack(*KEEP_PACKET))
    with socket.socket() as one:
        try:
            one.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(keep)))
        except OSError:
            return False
    return True


filters = pytest.mark.skipif(not may_filter(), reason="this user may not attach filters to sockets")


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    monkeypatch.setattr("pronk.transport.door.CALLS_AT_ONCE", 5.0)
    monkeypatch.setattr("pronk.transport.door.BLOCK_SECONDS", 600.0)
    monkeypatch.setattr("pronk.transport.door.LONGEST_BLOCK_SECONDS", 600.0)
    monkeypatch.setattr("pronk.transport.gateway_rules.IDLE_CONNECTIONS", 20)


def connect(port, source, seconds=10.0):
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(socket.socket(socket.AF_INET6 if ":" in source else socket.AF_INET))
        made.settimeout(seconds)
        made.bind((source, 0))
        made.connect(("::1" if ":" in source else "127.0.0.1", port))
        stack.pop_all()
        return made


def is_shut_out(port, source):
    try:
        connect(port, source, seconds=0.3).close()
    except TimeoutError:
        return True
    return False


def is_closed(one):
    one.settimeout(10.0)
    with contextlib.suppress(ConnectionResetError), one:
        while one.recv(1 << 16):
            pass
    return True


def port_of(served):
    return int(served.address.rpartition(":")[2])


@filters
def test_who_calls_for_nothing_is_shut_out_and_who_plays_there_is_not(monkeypatch):
    monkeypatch.setattr("pronk.transport.door.ALLOWED_PER_SECOND", 0.01)  # the machine may be slow
    with gateway(credentials=Credentials("right")) as served:
        good = served.join()
        for _ in range(20):
            with pytest.raises((UserError, LearnerUnavailable)):
                served.connect(token="wrong")
            if any("too many calls without an unroll" in line for line in served.log):
                break
        until(lambda: is_shut_out(port_of(served), "127.0.0.1"))
        assert not is_shut_out(port_of(served), STRANGER)
        send(good, 3.0)
        assert take(served) == [3.0]
        door = served.gateway._door
        door._blocked = dict.fromkeys(door._blocked, 0.0)  # its time is over
        until(lambda: not door._blocked)
        served.join()


@filters
def test_silent_sockets_do_not_keep_an_actor_out():
    with gateway(max_actors=2) as served:
        strangers = [connect(port_of(served), STRANGER) for _ in range(60)]
        assert all(is_closed(one) for one in strangers)
        assert any(f"refused {STRANGER}: too many " in line for line in served.log)
        until(lambda: is_shut_out(port_of(served), STRANGER))
        served.join()


def test_who_sends_much_and_does_not_play_is_shut_out():
    settings = struct.pack("!I", 0)[1:] + b"\4\0\0\0\0\0"  # an HTTP/2 frame that gRPC answers by itself
    with gateway() as served:
        # Once it is shut out nobody reads any more: sending fails or blocks.
        with connect(port_of(served), STRANGER) as stranger, contextlib.suppress(ConnectionError, TimeoutError):
            stranger.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            while True:
                stranger.sendall(settings * 500)
                while select.select([stranger], [], [], 0)[0]:  # all answers, or gRPC would stop reading
                    if not stranger.recv(1 << 20):
                        raise ConnectionResetError
        until(lambda: any(f"refused {STRANGER}: too much data" in line for line in served.log))
        served.join()


def test_connections_that_are_gone_already_count_for_the_address_of_those_that_are_not():
    log = GatewayLog(lambda line: None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        door = Door(port, 20, log, set)
        door.look()
        with contextlib.ExitStack() as stack:

            def is_blocked():
                # Again and again: what earlier tests opened may be closed only now, and hide a single connection.
                stack.enter_context(connect(port, STRANGER))
                accepted = stack.enter_context(listener.accept()[0])
                log.connected += 50
                door.look()
                return is_closed(accepted) if door._blocked else None

            until(is_blocked)
            assert list(door._blocked) == [address_of(f"ipv4:{STRANGER}:1")]


def test_a_look_without_a_free_descriptor_fails_nothing(monkeypatch):
    def full(path):
        raise OSError(errno.EMFILE, "Too many open files", path)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        door = Door(port, 0, GatewayLog(lambda line: None), set)
        with connect(port, STRANGER), listener.accept()[0] as accepted:
            with monkeypatch.context() as patched:
                patched.setattr(os, "listdir", full)
                door.look()
                for _ in range(10):
                    door.opened(f"ipv4:{STRANGER}:1")
                    door.closed(f"ipv4:{STRANGER}:1", useful=False)
            assert list(door._blocked) == [address_of(f"ipv4:{STRANGER}:1")]
            assert not select.select([accepted], [], [], 0)[0], "it could not be found"
            door._blocked.clear()
            until(lambda: door.look() or door._blocked)
            assert is_closed(accepted)


@filters
def test_an_ipv6_network_is_shut_out_as_a_whole():
    try:
        listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    except OSError:
        pytest.skip("no IPv6 here")
    with listener:
        port = listener.getsockname()[1]
        door = Door(port, 20, GatewayLog(lambda line: None), set)
        door._block({address_of("ipv6:%5B::1%5D:7"), address_of(f"ipv4:{STRANGER}:7")}, "a test")
        assert is_shut_out(port, "::1")
        assert is_shut_out(port, STRANGER)
        assert not is_shut_out(port, "127.0.0.1")
        door._blocked.clear()
        door._set_filter()
        assert not is_shut_out(port, "::1")


def test_looking_at_sockets_opens_nothing():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with connect(port, STRANGER) as made, listener.accept()[0]:
            before = os.listdir("/proc/self/fd")
            assert len([one.fileno() for one in sockets(port)]) == 2
            [(caller, _)] = connections(port)
            assert os.listdir("/proc/self/fd") == before
            assert caller == f"ipv4:{STRANGER}:{made.getsockname()[1]}"


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
    ],
)
def test_an_address_is_told_from_a_caller(host, address):
    assert str(address_of(caller_name(host, 5050))) == address


def test_an_allowance_comes_back_and_is_bounded(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("pronk.transport.door.time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr("pronk.transport.door.MOST_COUNTED", 3)
    allowances, somebody = Allowances(2.0), address_of("ipv4:10.0.0.1:1")
    assert [allowances.charge(somebody, 1) for _ in range(3)] == [True, True, False]
    now[0] += 0.1
    assert [allowances.charge(somebody, 1) for _ in range(2)] == [True, False]
    for number in range(10):
        allowances.charge(address_of(f"ipv4:10.0.1.{number}:1"), 1)
    assert len(allowances._left) == 3


def test_grpcs_log_is_counted_and_other_lines_are_kept():
    reader, writer = os.pipe()
    connected = (
        "I1117 23:05:57.100764   15075 handshaker.cc:80] handshake_manager 0x7f: adding handshaker endpoint_info [0]"
    )
    failed = "I1117 23:05:57.100764   15075 x.cc:80] Handshake failed: WRONG_VERSION_NUMBER"
    os.write(writer, f"{connected}\n{connected}\n{failed}\nTraceback\n".encode())
    os.close(writer)
    lines, kept = [], []
    log = GatewayLog(lines.append)
    sort_lines(reader, log, kept.append)
    assert log.connected == 2
    assert kept == ["Traceback\n"]
    assert "plain text, or random bytes" in lines[0]
