"""Training under attack: `python benchmarks/hostile_clients.py --seconds 10 --rounds 2`.

A real CartPole training whose unrolls all pass through the gateway, and strangers who attack its port from one address.
Rounds without and with an attack alternate, so that a machine that gets faster or slower changes both. Printed are the
steps per second under each attack as a share of the undisturbed rounds around it, what the attack achieved, how much of
a core the gateway used, and how long a new actor at another address took to join in the middle of the attack; and the
memory of learner and gateway before the first and at the end of the last attacked round (anonymous pages, because files
that they map are shared with others).

The attackers share this machine's cores: part of what an attack costs here is their own work. They speak HTTP/2 by
hand, which costs an attacker least.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import re
import secrets
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pronk.transport.frames import METHOD, PROTOCOL, TOKEN, Kind, pack_json
from pronk.transport.grpc_actor import Connection, LearnerUnavailable
from pronk.transport.security import Credentials

ADDRESSES = "127.0.66."  # each attack has its own, or it would still be blocked for the last one; all are this machine
THREADS = 16
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # and empty SETTINGS
SETTINGS_ACK = b"\0\0\0\4\1\0\0\0\0"
DATA, HEADERS, RST_STREAM = 0, 1, 3
END_STREAM, END_HEADERS = 1, 4
JOIN_SECONDS = 60.0
numbers = itertools.count(1)


def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return struct.pack("!I", len(body))[1:] + bytes([kind, flags]) + struct.pack("!I", stream) + body


def text(value: str) -> bytes:
    """As HPACK writes a literal of less than 127 bytes."""
    assert len(value) < 127
    return bytes([len(value)]) + value.encode()


def call_headers(token: str | None) -> bytes:
    fields = {"content-type": "application/grpc", "te": "trailers"} | ({TOKEN: token} if token else {})
    fixed = b"\x83\x86\x04" + text(METHOD) + b"\x01" + text("learner")  # POST, http, path, authority
    return fixed + b"".join(b"\x00" + text(key) + text(value) for key, value in fields.items())


def call(stream: int, token: str | None) -> bytes:
    return frame(HEADERS, END_HEADERS | END_STREAM, stream, call_headers(token))


def connect(port: int, source: str) -> socket.socket:
    made = socket.socket()
    made.settimeout(2.0)
    try:
        made.bind((source, 0))
        made.connect(("127.0.0.1", port))
    except OSError:
        made.close()
        raise
    return made


class Attack:
    """What one attack does until it is over, in several threads; `made` counts what it achieved."""

    def __init__(self, port: int, source: str, token: str) -> None:
        self.port, self.source, self.token, self.made = port, source, token, 0

    def calls(self, token: str | None) -> None:
        """Make calls one after another, each as soon as the last was refused."""
        with connect(self.port, self.source) as made:
            made.sendall(PREFACE)
            received = made.recv(1 << 16)[:0]  # the server's SETTINGS: without a reply to them it serves few calls
            made.sendall(SETTINGS_ACK)
            for stream in range(1, 1 << 30, 2):
                made.sendall(call(stream, token))
                ended = False
                while not ended:
                    received, ended = read_frames(made, received, stream)
                self.made += 1

    def no_token(self) -> None:
        self.calls(None)

    def wrong_token(self) -> None:
        self.calls("f" * 64)

    def unanswered(self) -> None:
        """Calls that gRPC itself refuses, because its SETTINGS were not acknowledged: Python never sees them."""
        with connect(self.port, self.source) as made:
            made.sendall(PREFACE)
            for stream in range(1, 1 << 30, 200):
                made.sendall(b"".join(call(number, None) for number in range(stream, stream + 200, 2)))
                made.recv(1 << 16)
                self.made += 100

    def http(self) -> None:
        """Plain HTTP/1.1 requests, each over a connection of its own."""
        with connect(self.port, self.source) as made:
            made.sendall(b"GET / HTTP/1.1\r\nHost: learner\r\n\r\n")
            while made.recv(1 << 16):
                pass
        self.made += 1

    def silent_sockets(self) -> None:
        """3,070 connections in all, that say nothing; closed ones are opened again."""
        self.hold(3070 // THREADS, b"")

    def hello_only(self) -> None:
        """With the right token: 1,100 callers that say HELLO and never play."""
        hello = pack_json(Kind.HELLO, {"protocol": PROTOCOL, "name": "stranger"})
        message = b"\0" + struct.pack("!I", len(hello)) + hello
        self.hold(
            1100 // THREADS,
            PREFACE + frame(HEADERS, END_HEADERS, 1, call_headers(self.token)) + frame(DATA, 0, 1, message),
        )

    def hold(self, count: int, opening: bytes) -> None:
        with contextlib.ExitStack() as stack:
            held: list[socket.socket] = []
            while True:
                while len(held) < count:
                    made = stack.enter_context(connect(self.port, self.source))
                    made.sendall(opening)
                    made.setblocking(False)
                    held.append(made)
                    self.made += 1
                time.sleep(0.2)
                held = [one for one in held if not is_closed(one)]


def read_frames(made: socket.socket, received: bytes, stream: int) -> tuple[bytes, bool]:
    """Read what has come; return the rest, of a frame that is not whole, and whether the stream was ended."""
    ended, block = False, made.recv(1 << 16)
    if not block:
        raise ConnectionError("closed")
    received += block
    while len(received) >= 9 and len(received) >= (size := 9 + int.from_bytes(received[:3], "big")):
        kind, flags, number = received[3], received[4], int.from_bytes(received[5:9], "big")
        ended = ended or (number == stream and (kind == RST_STREAM or (kind == HEADERS and bool(flags & END_STREAM))))
        received = received[size:]
    return received, ended


def is_closed(one: socket.socket) -> bool:
    try:
        while one.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    one.close()
    return True


ATTACKS = ["no_token", "wrong_token", "unanswered", "http", "silent_sockets", "hello_only"]


def attack(kind: str, port: int, source: str, token: str, begin: Any, made: Any) -> None:
    """Run in a process of its own, until it is killed."""
    attacks = [Attack(port, source, token) for _ in range(THREADS)]
    begin.wait()

    def repeat(act: Callable[[], None]) -> None:
        while True:
            try:
                act()
            except OSError:  # refused, closed, or nobody answers
                time.sleep(0.001)

    for one in attacks:
        threading.Thread(target=repeat, args=(getattr(one, kind),), daemon=True).start()
    while True:
        time.sleep(0.1)
        made.value = sum(one.made for one in attacks)


class Target(NamedTuple):
    """A training: the gateway's port, the run directory and two process ids."""

    port: int
    run: Path
    learner: int
    gateway: int

    def memory(self) -> list[float]:
        """Memory of learner and gateway, in MiB."""
        return [anonymous_mib(self.learner), anonymous_mib(self.gateway)]


@contextlib.contextmanager
def training(folder: Path, token: str) -> Iterator[Target]:
    """Train while the block lasts."""
    (folder / "token").write_text(token)
    run = folder / "run"
    settings = ["transport=grpc", "gateway.address=127.0.0.1:0", f"gateway.token_file={folder / 'token'}"]
    endless = ["run.stop_return=null", "run.total_steps=1000000000000"]
    learner = subprocess.Popen(
        [sys.executable, "-m", "pronk", "train", "cartpole", *settings, *endless, "--run-dir", str(run), "--quiet"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 120
        metrics = run / "metrics.jsonl"
        while not metrics.exists() or not metrics.stat().st_size or not (run / "address").exists():
            assert learner.poll() is None, "the training ended"
            assert time.monotonic() < deadline, "the training did not start"
            time.sleep(0.2)
        time.sleep(3.0)  # the first seconds are slower
        [gateway] = re.findall(r"the gateway starts .*pid (\d+)", (run / "logs" / "gateway.log").read_text())
        port = int((run / "address").read_text().rpartition(":")[2])
        yield Target(port, run, learner.pid, int(gateway))
        assert learner.poll() is None, "the training ended"
    finally:
        learner.terminate()
        learner.wait(60)


def last_row(run: Path) -> dict[str, Any]:
    return json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])


def anonymous_mib(pid: int) -> float:
    """Memory of a process that is not a file's."""
    [kib] = re.findall(r"^Anonymous: +(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    return int(kib) / 1024


def gateway_seconds(gateway: int) -> float:
    """CPU time of the gateway's process."""
    fields = Path(f"/proc/{gateway}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(seconds: float, target: Target) -> tuple[float, float]:
    """Return steps per second, and the gateway's share of a core."""
    first, used = last_row(target.run), gateway_seconds(target.gateway)
    time.sleep(seconds)
    last = last_row(target.run)
    passed = max(1e-9, last["wall_seconds"] - first["wall_seconds"])
    return (last["env_steps"] - first["env_steps"]) / passed, (gateway_seconds(target.gateway) - used) / seconds


def seconds_to_join(port: int, token: str) -> float:
    """Until an actor at another address than the attacker's has its place."""
    began = time.monotonic()
    while time.monotonic() - began < JOIN_SECONDS:
        try:
            connection = Connection(f"127.0.0.1:{port}", Credentials(token), 8.0)
        except LearnerUnavailable:
            time.sleep(0.1)
            continue
        connection.close("joined")
        return time.monotonic() - began
    return float("inf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="of each round")
    parser.add_argument("--rounds", type=int, default=2, help="of each attack")
    parser.add_argument("--attacks", nargs="*", default=ATTACKS, choices=ATTACKS)
    options = parser.parse_args()
    token = secrets.token_hex(32)
    print(
        "| attack | steps/s, undisturbed | attacked | ratio | attacks/s | gateway, cores | a new actor joins after "
        "| learner, MiB | gateway, MiB |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder, training(Path(folder), token) as target:
        for kind in options.attacks:
            show_attack(kind, options, target, token)
        log = (target.run / "logs" / "gateway.log").stat().st_size
    print(f"\ngateway.log: {log / 1000:.1f} KB; load of the machine at the end: {os.getloadavg()[0]:.1f}")


def show_attack(kind: str, options: argparse.Namespace, target: Target, token: str) -> None:
    calm, attacked, cores, made, joined = [], [], [], [], []
    calm.append(measure(options.seconds, target)[0])
    before = after = target.memory()
    for _ in range(options.rounds):
        spawn = multiprocessing.get_context("spawn")
        count, begin, source = spawn.Value("q", 0), spawn.Event(), f"{ADDRESSES}{next(numbers)}"
        attacker = spawn.Process(target=attack, args=(kind, target.port, source, token, begin, count))
        attacker.start()
        try:
            time.sleep(1.5)  # for its imports
            begin.set()
            steps, share = measure(options.seconds, target)
            after = target.memory()
            made.append(count.value / options.seconds)
            joined.append(seconds_to_join(target.port, token))
        finally:
            attacker.kill()
            attacker.join()
        attacked.append(steps)
        cores.append(share)
        time.sleep(1.0)
        calm.append(measure(options.seconds, target)[0])
    undisturbed = statistics.mean(calm)
    ratio = statistics.mean(attacked) / undisturbed
    learner, gateway = (f"{first:.1f} → {last:.1f}" for first, last in zip(before, after, strict=True))
    print(
        f"| {kind.replace('_', ' ')} | {undisturbed:,.0f} | {statistics.mean(attacked):,.0f} | {ratio:.2f} "
        f"| {statistics.mean(made):,.0f} | {statistics.mean(cores):.2f} | {max(joined):.1f} s "
        f"| {learner} | {gateway} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
