"""An actor that knows only an address: it joins a learner over gRPC, gets everything else from it, and plays.

When the connection is lost it tries again, with growing pauses. If the same learner is back (the network was down), it
continues where it was; if the learner was restarted, the actor starts again too, because configuration and seeds may
have changed.
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
from pronk.processes.restarts import RestartPolicy
from pronk.processes.threads import limit_threads
from pronk.transport import Closed
from pronk.transport.grpc_actor import Connection, GrpcActorPort, LearnerUnavailable
from pronk.transport.grpc_requests import GrpcRequests
from pronk.transport.security import Credentials
from pronk.types import Failure, UserError

if TYPE_CHECKING:
    from pronk.actor import Actor

# Each pause is shortened by up to a half at random, so that many actors do not come back in the same instant.
RECONNECT = RestartPolicy(first_pause=0.5, last_pause=30.0, growth=2.0)
STEADY_SECONDS = 10.0  # a connection that lasted so long resets the pauses
KEEPALIVE_SECONDS = 8.0


@dataclass
class RemoteActor:
    """One actor, over all its connections."""

    address: str
    credentials: Credentials
    say: Callable[[str], None]
    """Shows the user a line: joined, lost, waiting."""
    progress: Callable[[int], None] = lambda steps: None
    """Environment steps sent so far; called after every unroll."""
    give_up_after: float = float("inf")
    """Seconds without a learner."""
    hello: dict[str, Any] | None = None
    on_hang: Callable[[], None] = lambda: None
    """Called when the learner timed out waiting for an unroll; from another thread, because the main one is busy."""
    _attempts: int = 0
    _steps: int = 0

    def run(self) -> None:
        """Play until the learner's run has ended."""
        keep_freed_memory()
        connection: Connection | None = self._connect()
        while connection is not None:
            connection = self._play(connection)

    def _play(self, connection: Connection) -> Connection | None:
        """Play for one learner until it ends; return the connection to the one that replaced it, if any."""
        from pronk.actor import make_actor

        welcome = connection.welcome
        config = ResolvedConfig.from_yaml(welcome["config"], f"the configuration from {self.address}")
        requests = GrpcRequests(connection)
        ticket = {**welcome["acting"], "requests": requests} if welcome["acting"] else {"mlp": welcome["mlp"]}
        ports: list[GrpcActorPort] = []

        def make_port(layout: UnrollLayout, nbytes: int) -> GrpcActorPort:
            check_same(layout, nbytes, welcome)
            ahead = config.actors.sync_every == 1 and not welcome["acting"]  # else it fetches no parameters
            ports.append(GrpcActorPort(connection, layout, nbytes, ahead))
            return ports[0]

        try:
            with user_code("the actor"):
                index = welcome["actor"]
                with make_actor(config, make_port, index, welcome["life"], welcome["generation"], ticket) as actor:
                    limit_threads(config.actors.threads)
                    self.say(f"joined {self.address} as actor {index}: {describe(config)}")
                    report(Joined())
                    while True:
                        self._play_until_closed(actor, config)
                        if connection.finished:
                            connection.close("the run has ended")
                            return None
                        connection.close()
                        if isinstance(reason := connection.reason(), UserError):
                            raise reason
                        following = self._connect(reason)
                        if following.welcome["learner"] != welcome["learner"]:
                            self.say("the learner was restarted")
                            return following
                        connection = following
                        requests.attach(connection)
                        ports[0].attach(connection)
        except BaseException as error:
            connection.close((str(error).splitlines() or [type(error).__name__])[-1])
            raise

    def _play_until_closed(self, actor: Actor, config: ResolvedConfig) -> None:
        began = time.monotonic()
        with contextlib.suppress(Closed):
            while True:
                actor.advance()
                self._steps += config.actors.envs * config.actors.unroll_length
                self.progress(self._steps)
                if self._attempts and time.monotonic() - began > STEADY_SECONDS:
                    self._attempts = 0

    def _connect(self, lost: Exception | None = None) -> Connection:
        """Try until a learner answers. Raises Failure after `give_up_after` seconds, UserError if it refuses."""
        began, said = time.monotonic(), ""
        while True:
            if lost is not None:
                if time.monotonic() - began >= self.give_up_after:
                    raise Failure(f"no learner at {self.address} for {self.give_up_after:g} s: {lost}")
                if str(lost) != said:
                    self.say(f"no learner at {self.address}: {lost}; trying again until there is one")
                    said = str(lost)
                self._attempts += 1
                pause = RECONNECT.pause(self._attempts) * random.uniform(0.5, 1.0)
                time.sleep(min(pause, max(0.0, began + self.give_up_after - time.monotonic())))
            try:
                connection = Connection(self.address, self.credentials, KEEPALIVE_SECONDS, self.hello)
                connection.on_hang = self.on_hang
                connection.on_quiet = self._say_quiet
                return connection
            except LearnerUnavailable as error:
                lost = error

    def _say_quiet(self) -> None:
        self.say(f"the learner at {self.address} takes no unrolls: it is stopped, hangs, or is busy; waiting for it")


def check_same(layout: UnrollLayout, nbytes: int, welcome: dict[str, Any]) -> None:
    """Raise UserError unless environment and network have the same shapes here as at the learner."""
    theirs = UnrollLayout.from_plain(welcome["layout"])
    if layout.digest != theirs.digest:
        raise UserError(
            f"the environment or the network here is not the learner's: {layout.difference(theirs)}. "
            "Are the same versions installed?"
        )
    if nbytes != welcome["parameters_nbytes"]:
        raise UserError(f"the network here has {nbytes:,} bytes, the learner's {welcome['parameters_nbytes']:,}")


def describe(config: ResolvedConfig) -> str:
    """Return in a few words what is played."""
    game = f" {config.env.game}" if config.env.game else ""
    played = config.env.label if config.env.tasks else f"{config.env.id}{game}"
    return f"{played}, {config.actors.envs} environments, unrolls of {config.actors.unroll_length} steps"
