"""An actor that has nothing but an address: it joins a learner, gets everything else from it, and plays.

A learner that goes away is waited for, with growing pauses. If the same one is back (the network was down), play goes
on where it was; if it was started anew, so is the actor, because configuration and seeds may be others.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pronk.config import ResolvedConfig
from pronk.layout import UnrollLayout
from pronk.processes.failures import user_code
from pronk.processes.freed_memory import keep_freed_memory
from pronk.processes.messages import Joined
from pronk.processes.reporting import report
from pronk.transport import Closed
from pronk.transport.grpc_actor import Connection, GrpcActorPort, Lost
from pronk.transport.security import Pass
from pronk.types import Failure, UserError

if TYPE_CHECKING:
    from pronk.actor import Actor

FIRST_PAUSE, LAST_PAUSE = 0.5, 30.0  # seconds between attempts; a random half of it is left out
STEADY_SECONDS = 10.0  # a connection that lasted so long was a good one
KEEPALIVE_SECONDS = 8.0


@dataclass
class Joining:
    """One actor, over all its connections."""

    address: str
    shown: Pass
    tell: Callable[[str], None]
    """What happens: joined, lost, waiting."""
    progress: Callable[[int], None] = lambda steps: None
    """Environment steps sent so far; called after every unroll."""
    give_up_after: float = float("inf")
    """Seconds without a learner."""
    hello: dict[str, Any] | None = None
    on_hang: Callable[[], None] = lambda: None
    """The learner waits in vain for an unroll. Called from another thread: this one is busy."""
    _attempts: int = 0
    _steps: int = 0

    def run(self) -> None:
        """Play until the learner's run has ended."""
        keep_freed_memory()
        connection: Connection | None = self._connect()
        while connection is not None:
            connection = self._play(connection)

    def _play(self, connection: Connection) -> Connection | None:
        """For one learner, from its welcome to its end; gives the connection to the next learner, if it has another."""
        import torch

        from pronk.actor import make_actor

        welcome = connection.welcome
        config = ResolvedConfig.from_yaml(welcome["config"], f"the configuration from {self.address}")
        torch.set_num_threads(config.actors.threads)
        ports: list[GrpcActorPort] = []

        def make_port(layout: UnrollLayout, nbytes: int) -> GrpcActorPort:
            check_same(layout, nbytes, welcome)
            ports.append(GrpcActorPort(connection, layout, nbytes, ahead=config.actors.sync_every == 1))
            return ports[0]

        try:
            with user_code("the actor"):
                place = welcome["actor"], welcome["life"], welcome["generation"]
                with make_actor(config, make_port, *place) as actor:
                    self.tell(f"joined {self.address} as actor {place[0]}: {describe(config)}")
                    report(Joined(place[0]))
                    while True:
                        self._play_on(actor, config)
                        if connection.finished:
                            connection.close("the run has ended")
                            return None
                        connection.close()
                        if isinstance(reason := connection.reason(), UserError):
                            raise reason
                        following = self._connect(reason)
                        if following.welcome["learner"] != welcome["learner"]:
                            self.tell("the learner has been started anew")
                            return following
                        connection = following
                        ports[0].attach(connection)
        except BaseException as error:
            connection.close((str(error).splitlines() or [type(error).__name__])[-1])
            raise

    def _play_on(self, actor: Actor, config: ResolvedConfig) -> None:
        """Until the connection ends."""
        began = time.monotonic()
        with contextlib.suppress(Closed):
            while True:
                actor.advance()
                self._steps += config.actors.envs * config.actors.unroll_length
                self.progress(self._steps)
                if self._attempts and time.monotonic() - began > STEADY_SECONDS:
                    self._attempts = 0

    def _connect(self, lost: Exception | None = None) -> Connection:
        """Try until there is a learner, or until it is no use."""
        began, told = time.monotonic(), ""
        while True:
            if lost is not None:
                if time.monotonic() - began >= self.give_up_after:
                    raise Failure(f"no learner at {self.address} for {self.give_up_after:g} s: {lost}")
                if str(lost) != told:
                    self.tell(f"no learner at {self.address}: {lost}; trying again until there is one")
                    told = str(lost)
                pause = min(LAST_PAUSE, FIRST_PAUSE * 2 ** min(self._attempts, 10)) * random.uniform(0.5, 1.0)
                self._attempts += 1
                time.sleep(min(pause, max(0.0, began + self.give_up_after - time.monotonic())))
            try:
                connection = Connection(self.address, self.shown, KEEPALIVE_SECONDS, self.hello)
                connection.on_hang = self.on_hang
                return connection
            except Lost as error:
                lost = error


def check_same(layout: UnrollLayout, nbytes: int, welcome: dict[str, Any]) -> None:
    """What this machine's environment and network give must be what the learner's gave."""
    theirs = UnrollLayout.from_plain(welcome["layout"])
    if layout.digest != theirs.digest:
        raise UserError(
            f"the environment or the network here is not the learner's: {layout.difference(theirs)}. "
            "Are the same versions installed?"
        )
    if nbytes != welcome["parameters_nbytes"]:
        raise UserError(f"the network here has {nbytes:,} bytes, the learner's {welcome['parameters_nbytes']:,}")


def describe(config: ResolvedConfig) -> str:
    """What is played, in a few words."""
    game = f" {config.env.game}" if config.env.game else ""
    return f"{config.env.id}{game}, {config.actors.envs} environments, unrolls of {config.actors.unroll_length} steps"
