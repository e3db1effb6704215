"""The gateway as the learner sees it: a supervised process through which actors of other machines join.

With `transport=shared_memory` and an address, the learner's own actors use shared memory and others the gateway; with
`transport=grpc` its own use the gateway too. The learner sees no difference.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from pronk.actors.base import ActorSetup, Watch
from pronk.actors.processes import ActorProcesses, inference_for
from pronk.actors.remote_count import RemoteCount
from pronk.actors.status import ActorState
from pronk.config import ResolvedConfig, memory_bytes
from pronk.policies import RemoteActing
from pronk.processes.messages import ActorJoined, ActorLeft, Listening, Message
from pronk.processes.reporting import report
from pronk.processes.restarts import RestartPolicy
from pronk.processes.supervisor import Child, Start, SupervisedProcess
from pronk.runs.atomic import write_atomically
from pronk.transport import LearnerPort
from pronk.transport.security import Credentials, learner_credentials
from pronk.transport.shared_memory import SharedMemoryTransport
from pronk.types import Failure

START_SECONDS = 60.0  # until the gateway listens, on a busy machine
SILENT_SECONDS = 20.0  # without a heartbeat, which is due every second: the gateway is restarted
FROZEN_SECONDS = 3.0  # without a heartbeat: its actors cannot deliver, and are not blamed for it
REMOVED_SECONDS = 60.0  # between two messages about actors that send impossible values
GRACE_SECONDS = 4.0  # to tell every actor that the run has ended
POLICY = RestartPolicy(max_failures=3, first_pause=0.5, steady_seconds=30.0)
LOOPBACK = "127.0.0.1:0"
USUAL_MOST_ACTORS = 1024
COPIES = 3  # of an unroll in memory, at worst: as gRPC received it, as Python got it, and in its slot


@contextlib.contextmanager
def running_actors(setup: ActorSetup) -> Iterator[tuple[LearnerPort, Watch]]:
    """The learner's own actors, if any, and a gateway for others."""
    actors, own_over_grpc = setup.config.actors, setup.config.transport.name == "grpc"
    most = max_actors(setup.config, setup.layout.nbytes) + (actors.count if own_over_grpc else 0)
    in_memory = 0 if own_over_grpc else actors.count
    nbytes = setup.parameters.block.nbytes
    port = SharedMemoryTransport(setup.layout, nbytes, in_memory, actors.slots, gateway_slots=most * actors.slots)
    port.publish(setup.parameters)
    with inference_for(setup, port) as inference:
        gateway = GatewayProcess(setup, port, in_memory, most, inference.remote(most))
        with (
            ActorProcesses(setup, gateway if own_over_grpc else port, inference, gateway.remote_actors) as local,
            gateway,
            port,
        ):
            if not own_over_grpc:
                gateway.others_work = local.somebody_plays
            gateway.start()
            inference.start()
            local.start()

            def watch() -> None:
                inference.watch()
                local.watch()
                gateway.watch()

            def while_waiting() -> None:
                setup.interrupts.check()
                watch()
                gateway.count.report_shortage()

            port.while_waiting = while_waiting
            yield port, watch


def max_actors(config: ResolvedConfig, nbytes: int) -> int:
    """Return how many actors of other machines may play at a time. `nbytes` is the size of an unroll."""
    if config.gateway.address is None:
        return 0
    if config.gateway.max_actors != "auto":
        return config.gateway.max_actors
    return max(1, min(USUAL_MOST_ACTORS, memory_bytes() // 2 // (COPIES * nbytes * config.actors.slots)))


@dataclass(frozen=True)
class GrpcTicket:
    """What one of the learner's own actors needs to join over gRPC. Nothing is inherited."""

    address: str
    token: str = field(repr=False)
    descriptors: tuple[int, ...] = ()


class GatewayProcess:
    """The gateway's process, and the actors that play through it."""

    def __init__(
        self,
        setup: ActorSetup,
        transport: SharedMemoryTransport,
        number: int,
        most: int,
        acting: RemoteActing | None = None,
    ) -> None:
        """`number` is the gateway's in the transport; `most` actors may play through it, which act as `acting` says."""
        self._setup, self._transport, self._number, self._most = setup, transport, number, most
        self._acting = acting
        settings = setup.config.gateway
        self._address = settings.address or LOOPBACK
        # The learner's own actors connect in plain text from this machine, whatever credentials others must show.
        self._own_address = LOOPBACK if setup.config.transport.name == "grpc" and settings.address else None
        self._credentials, warnings = learner_credentials(settings) if settings.address else (Credentials(), [])
        for warning in warnings:
            setup.say(warning)
        self._learner, self._inner_token = secrets.token_hex(16), secrets.token_hex(32)
        self._names: dict[int, str] = {}  # of the actors that play through the gateway
        self._listened = 0
        self._said_removed_at = -REMOVED_SECONDS
        self._responsive_since = time.monotonic()
        self.others_work: Callable[[], bool] = lambda: False
        """Whether the run goes on without the gateway."""
        self.count = RemoteCount(setup)
        self._address_file = (setup.logs if setup.config.rank else setup.logs.parent) / "address"
        child = Child(
            name="the gateway",
            program="pronk.actors.gateway_process",
            log=setup.logs / "gateway.log",
            prepare=self._prepare,
            policy=POLICY,
            progress=lambda: self._listened,
            timeout_seconds=min(setup.config.actors.timeout_seconds, SILENT_SECONDS),
            timeout_key=None,
            silent_seconds=self._silent_seconds,
            others_work=lambda: self.others_work(),
        )
        self._process = SupervisedProcess(child, setup.say)

    def __enter__(self) -> GatewayProcess:
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for the gateway, which ends when the port is closed."""
        self._address_file.unlink(missing_ok=True)
        self._process.stop(time.monotonic() + GRACE_SECONDS)

    def start(self) -> None:
        """Start the gateway and wait until it listens."""
        self._address_file.unlink(missing_ok=True)  # of a learner that was killed
        self._process.start()
        deadline = time.monotonic() + START_SECONDS
        while not self._listened:
            self._setup.interrupts.check()
            self._handle(self._process.poll())
            if time.monotonic() > deadline:
                raise Failure(f"the gateway did not start within {START_SECONDS:g} s; log: {self._process.spec.log}")
            time.sleep(0.02)
        self.count.address = self._address
        if self._setup.config.gateway.address is not None:
            kinds = [*(["TLS"] if self._credentials.tls else []), *(["token"] if self._credentials.token else [])]
            self._setup.say(f"listening on {self._address} ({', '.join(kinds) or 'no TLS, no token'})")
            report(Listening(self._address))

    def watch(self) -> None:
        """Handle what the gateway reports; restart it if it died or hangs."""
        self._handle(self._process.poll())
        if not self._process.has_reported or self._process.process is None or self._silent_seconds() > FROZEN_SECONDS:
            self._responsive_since = time.monotonic()
        if self._process.process is None:
            self.count.playing = 0
            self._names.clear()
        self.count.report_changes()

    @property
    def pid(self) -> int | None:
        """Of the process; None between two lives."""
        return self._process.process.pid if self._process.process is not None else None

    def remote_actors(self) -> list[ActorState]:
        """Return the states of the actors of other machines."""
        port, slots = self._transport, self._setup.config.actors.slots
        return [
            ActorState(
                actor,
                "waiting" if port.filled(actor) == slots else "playing",
                port.delivered(actor),
                port.filled(actor),
                slots,
                silent_seconds=round(port.silent_seconds(actor), 1),
                machine=name,
            )
            for actor, name in sorted(self._names.items())
            if actor >= self._setup.config.actors.count  # the learner's own have the numbers before
        ]

    # What `ActorProcesses` needs of a transport, where the learner's own actors play through the gateway.

    def connect(self, actor: int) -> tuple[GrpcTicket, contextlib.AbstractContextManager[object]]:
        """Return a ticket for a new process of this actor."""
        self._transport.restarted(actor)
        return GrpcTicket(self._own_address or self._address, self._inner_token), contextlib.nullcontext()

    def delivered(self, actor: int) -> int:
        """See `ActorTransport`."""
        return self._transport.delivered(actor)

    def filled(self, actor: int) -> int:
        """See `ActorTransport`."""
        return self._transport.filled(actor)

    def silent_seconds(self, actor: int) -> float:
        """See `ActorTransport`. Time in which the gateway was stuck is not counted against an actor."""
        return min(self._transport.silent_seconds(actor), time.monotonic() - self._responsive_since)

    def _silent_seconds(self) -> float:
        """Return the seconds since the gateway last reported. Starting may take long, but not for ever."""
        return self._process.silent_seconds(START_SECONDS)

    def _handle(self, messages: list[Message]) -> None:
        for message in messages:
            match message:
                case Listening():
                    self._listened += 1
                    # A restarted gateway has to listen on the same ports.
                    self._address, self._own_address = message.address, message.own_address
                    self._write_address()
                case ActorJoined():
                    self._names[message.actor] = message.name
                    # The clock of an own actor starts with its process (`connect`), not whenever it joins: one whose
                    # unrolls are refused joins again and again, and must still be found silent.
                    if message.actor >= self._setup.config.actors.count:
                        self._transport.restarted(message.actor)
                    self._set_playing(message.playing)
                case ActorLeft():
                    name = self._names.pop(message.actor, "")
                    if message.removed:
                        self._report_removed(f"actor {message.actor} ({name})", message.removed)
                    self._set_playing(message.playing)

    def _write_address(self) -> None:
        """Write the address for other programs. A full disk is reported; training continues."""
        try:
            write_atomically(self._address_file, f"{self._address}\n".encode())
        except OSError as error:
            self._setup.say(f"cannot write {self._address_file}: {error}")

    def _report_removed(self, who: str, why: str) -> None:
        """Tell the user which actor sent impossible values. Seldom: a removed actor may come back at once, for ever."""
        if time.monotonic() - self._said_removed_at > REMOVED_SECONDS:
            self._said_removed_at = time.monotonic()
            self._setup.say(f"{who} was removed: it sent impossible values ({why}); see {self._process.spec.log}")

    def _set_playing(self, count: int) -> None:
        self.count.playing = count
        self._transport.room = self._setup.config.actors.slots * (self._number + count)

    def _prepare(self, life: int) -> Start:
        ticket, inherited = self._transport.connect(self._number)
        descriptors = [*ticket.descriptors, *(self._acting.gateway.descriptors if self._acting else ())]
        return Start(self._job(asdict(ticket), life), descriptors, inherited)

    def _job(self, ticket: dict[str, Any], life: int) -> dict[str, Any]:
        config, layout = self._setup.config, self._setup.layout
        as_text = {
            name: value.decode() if isinstance(value, bytes) else value
            for name, value in vars(self._credentials).items()
        }
        welcome = {
            "learner": self._learner,
            # Remote actors need not know where the learner's files are.
            "config": config.replace(
                {
                    "gateway": {},
                    "actors.count": 1,
                    "actors.inference": config.actors.inference if self._acting else "local",
                }
            ).to_yaml(),
            "generation": self._setup.generation,
            "layout": layout.plain(),
            "parameters_nbytes": self._setup.parameters.block.nbytes,
            "compression": config.transport.compression,
            "mlp": self._setup.mlp._asdict() if self._setup.mlp else None,
            "acting": self._acting.ticket if self._acting else None,
        }
        return {
            "address": self._address,
            "own_address": self._own_address,
            "ticket": ticket,
            "life": life,
            "layout": layout.plain(),
            "digest": layout.digest,
            "credentials": as_text,
            "requests": self._acting.gateway.job if self._acting else None,
            "rules": {
                "parameters_nbytes": self._setup.parameters.block.nbytes,
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
