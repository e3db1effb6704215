"""The gateway's process, looked after by the learner: where actors of other machines join.

With `transport=shared_memory` and an address, the learner's own actors stay on shared memory and others come through
the gateway; with `transport=grpc` its own come through the gateway too. The learner sees no difference.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from pronk.actors.base import Play, Watch
from pronk.actors.board import ActorState
from pronk.actors.crowd import Crowd
from pronk.actors.local import LocalLauncher
from pronk.config import ResolvedConfig
from pronk.processes import legacy_child as child
from pronk.processes.messages import Listening
from pronk.processes.reporting import report
from pronk.transport import LearnerPort
from pronk.transport.security import Pass, learner_pass
from pronk.transport.shared_memory import SharedMemoryTransport
from pronk.types import Failure, UserError

START_SECONDS = 60.0  # for the gateway to listen, on a busy machine
GRACE_SECONDS = 4.0  # for it to say goodbye to everybody
YOUNG_SECONDS = 30.0  # a gateway that ends so soon has failed in a row
MOST_FAILURES = 3
FIRST_BACKOFF = 0.5  # seconds
LOOPBACK = "127.0.0.1:0"
USUAL_MOST_ACTORS = 1024
COPIES = 3  # of an unroll that the gateway may hold at worst: as gRPC received it, as Python got it, and in its slot


@contextlib.contextmanager
def playing(play: Play) -> Iterator[tuple[LearnerPort, Watch]]:
    """The learner's own actors, if any, and a door for others."""
    actors, own_over_grpc = play.config.actors, play.config.transport.name == "grpc"
    most = max_actors(play.config, play.layout.nbytes) + (play.config.actors.count if own_over_grpc else 0)
    in_memory = 0 if own_over_grpc else play.config.actors.count
    nbytes = play.parameters.block.nbytes
    port = SharedMemoryTransport(play.layout, nbytes, in_memory, actors.slots, gateway_slots=most * actors.slots)
    port.publish(play.parameters)
    gateway = GatewayLauncher(play, port, in_memory, most)
    with LocalLauncher(play, gateway if own_over_grpc else port, gateway.guests) as launcher, gateway, port:
        gateway.start()
        launcher.start()

        def watch() -> None:
            launcher.watch()
            gateway.watch()

        def look_after() -> None:
            play.interrupts.check()
            watch()
            gateway.crowd.say_who_is_awaited()

        port.while_waiting = look_after
        yield port, watch


def max_actors(config: ResolvedConfig, nbytes: int) -> int:
    """Of other machines, at a time."""
    if config.gateway.address is None:
        return 0
    if config.gateway.max_actors != "auto":
        return config.gateway.max_actors
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(USUAL_MOST_ACTORS, memory // 2 // (COPIES * nbytes * config.actors.slots)))


@dataclass(frozen=True)
class GrpcTicket:
    """What one of the learner's own actors needs to join over gRPC. Nothing is inherited."""

    address: str
    token: str = field(repr=False)
    descriptors: tuple[int, ...] = ()


class GatewayLauncher:
    """Starts the gateway, starts it again when it dies, and says who is there."""

    def __init__(self, play: Play, transport: SharedMemoryTransport, number: int, most: int) -> None:
        self._play, self._transport, self._number, self._most = play, transport, number, most
        settings = play.config.gateway
        self._own = play.config.actors.count  # numbered before all others
        self._address = settings.address or LOOPBACK
        # The learner's own actors come in plain text from this machine, whatever others must show.
        self._own_address = LOOPBACK if play.config.transport.name == "grpc" and settings.address else None
        self._pass, warnings = learner_pass(settings) if settings.address else (Pass(), [])
        for warning in warnings:
            play.say(warning)
        self._learner, self._inner_token = secrets.token_hex(16), secrets.token_hex(32)
        self._process: subprocess.Popen[bytes] | None = None
        self._events = b""
        self._guests: dict[int, str] = {}  # actors of other machines, with what they call themselves
        self._lives = self._failures = 0
        self._started_at = self._due = 0.0
        self.crowd = Crowd(play)
        self._log = play.logs / "gateway.log"
        self._address_file = (play.logs if play.config.rank else play.logs.parent) / "address"

    def __enter__(self) -> GatewayLauncher:
        return self

    def __exit__(self, *_: object) -> None:
        """The port is closed by now, which the gateway hears."""
        self._address_file.unlink(missing_ok=True)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_SECONDS)
            self._bury()

    def start(self) -> None:
        """Until it listens."""
        self._address_file.unlink(missing_ok=True)  # of a learner that was killed
        self._start()
        deadline = time.monotonic() + START_SECONDS
        while not self._address_file.exists():
            self._play.interrupts.check()
            assert self._process is not None
            ended = self._process.poll() is not None
            self._hear()
            if self._address_file.exists():
                break
            if ended or time.monotonic() > deadline:
                raise Failure(f"the gateway does not start; its log ends with:\n{child.tail(self._log)}")
            time.sleep(0.02)
        self.crowd.address = self._address
        if self._play.config.gateway.address is not None:
            kinds = [*(["TLS"] if self._pass.tls else []), *(["token"] if self._pass.token else [])]
            self._play.say(f"listening on {self._address} ({', '.join(kinds) or 'no TLS, no token'})")
            report(Listening(self._address))

    def watch(self) -> None:
        """Hear who came and went; start it again if it died."""
        if self._process is None:
            if time.monotonic() >= self._due:
                self._start()
            return
        self._hear()
        self.crowd.say_who_is_there()
        if self._process.poll() is not None:
            self._died()

    def guests(self) -> list[ActorState]:
        """Actors of other machines."""
        port, slots = self._transport, self._play.config.actors.slots
        return [
            ActorState(
                actor,
                "waiting" if port.filled(actor) == slots else "playing",
                port.delivered(actor),
                port.filled(actor),
                slots,
                silent_seconds=round(port.silent_seconds(actor), 1),
                place=name,
            )
            for actor, name in sorted(self._guests.items())
            if actor >= self._own
        ]

    # What `LocalLauncher` asks of a transport, where the learner's own actors come through the gateway.

    def connect(self, actor: int) -> tuple[GrpcTicket, contextlib.AbstractContextManager[object]]:
        """A ticket for a new process of this actor."""
        self._transport.restarted(actor)
        return GrpcTicket(self._own_address or self._address, self._inner_token), contextlib.nullcontext()

    def delivered(self, actor: int) -> int:
        """Unrolls this actor has sent."""
        return self._transport.delivered(actor)

    def filled(self, actor: int) -> int:
        """How many of this actor's slots wait to be learnt from."""
        return self._transport.filled(actor)

    def silent_seconds(self, actor: int) -> float:
        """How long this actor has sent nothing although it could."""
        return self._transport.silent_seconds(actor)

    def _start(self) -> None:
        ticket, inherited = self._transport.connect(self._number)
        with inherited:
            job = self._job(asdict(ticket))
            self._process = child.start(
                "pronk.actors.gateway_process", job, self._log, ticket.descriptors, answers=True
            )
        child.hang_up(self._process)
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._lives += 1
        self._started_at = time.monotonic()

    def _job(self, ticket: dict[str, Any]) -> dict[str, Any]:
        config, layout = self._play.config, self._play.layout
        as_text = {
            name: value.decode() if isinstance(value, bytes) else value for name, value in vars(self._pass).items()
        }
        welcome = {
            "learner": self._learner,
            # Where the learner's files lie is nobody's business.
            "config": config.replace({"gateway": {}, "actors.count": 1}).to_yaml(),
            "generation": self._play.generation,
            "layout": layout.plain(),
            "parameters_nbytes": self._play.parameters.block.nbytes,
            "compression": config.transport.compression,
        }
        return {
            "address": self._address,
            "own_address": self._own_address,
            "ticket": ticket,
            "life": self._lives,
            "layout": layout.plain(),
            "digest": layout.digest,
            "pass": as_text,
            "rules": {
                "parameters_nbytes": self._play.parameters.block.nbytes,
                "slots": config.actors.slots,
                "max_actors": self._most,
                "first_index": config.actors.count,
                "welcome": welcome,
                "parameters_dtype": config.transport.parameters_dtype,
                "timeout_seconds": config.actors.timeout_seconds,
                "keepalive_seconds": config.gateway.keepalive_seconds,
                "inner_token": self._inner_token,
                "open": config.gateway.address is not None,
            },
        }

    def _hear(self) -> None:
        """What the gateway has told since."""
        assert self._process is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._process.stdout.fileno(), 65536):
                self._events += chunk
        *lines, self._events = self._events.split(b"\n")
        for event in map(json.loads, lines):
            if "listening" in event:
                self._address, self._own_address = event["listening"], event["own"]  # as after a restart
                self._address_file.write_text(self._address + "\n")
            elif "failed" in event:
                raise UserError(f"gateway.address: cannot listen on {self._address}: {event['failed']}")
            else:
                if "joined" in event:
                    self._guests[event["joined"]] = event["name"]
                    self._transport.restarted(event["joined"])
                else:
                    self._guests.pop(event["left"], None)
                self.crowd.playing = event["playing"]
                self._transport.room = self._play.config.actors.slots * (self._number + event["playing"])

    def _died(self) -> None:
        assert self._process is not None
        young = time.monotonic() - self._started_at < YOUNG_SECONDS
        self._failures = self._failures + 1 if young else 1
        code = self._process.returncode
        self._bury()
        if self._failures >= MOST_FAILURES:
            end = child.tail(self._log)
            raise Failure(f"the gateway ended {self._failures} times in a row; its log ends with:\n{end}")
        self._due = time.monotonic() + FIRST_BACKOFF * self._failures
        self.crowd.playing = 0
        self._guests.clear()
        self._play.say(f"the gateway ended (code {code}); it starts again. Its log: {self._log}")

    def _bury(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        self._process, self._events = None, b""
