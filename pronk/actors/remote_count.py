"""Messages about actors of other machines: how many play, and whether the learner waits for more."""

from __future__ import annotations

import time

from pronk.actors.base import ActorSetup

SAY_SECONDS = 3.0  # between two messages, and before the first about missing actors


class RemoteCount:
    """Tells the user when the number of remote actors changes, and when there are too few for a batch."""

    def __init__(self, setup: ActorSetup) -> None:
        actors = setup.config.actors
        over_grpc = setup.config.transport.name == "grpc"
        self._say, self._slots = setup.say, actors.slots
        self._local_grpc, self._local_memory = (actors.count, 0) if over_grpc else (0, actors.count)
        self._needed = max(1, setup.config.learner.batch_size // actors.envs)  # unrolls per update of this learner
        self.address = ""
        self.playing = 0  # through the gateway, this machine's included
        self._said = 0
        self._said_at = 0.0
        self._short_since: float | None = None

    def report_changes(self) -> None:
        """Report how many remote actors play, if that has changed."""
        remote = max(0, self.playing - self._local_grpc)
        now = time.monotonic()
        if remote == self._said or now - self._said_at < SAY_SECONDS:
            return
        change = f"{remote - self._said} more" if remote > self._said else f"{self._said - remote} fewer"
        self._say(f"actors of other machines: {remote} ({change})" if remote else "no actor of another machine is left")
        self._said, self._said_at = remote, now

    def report_shortage(self) -> None:
        """Report once that there are too few actors for a batch. Called while the learner waits."""
        now = time.monotonic()
        room = self._slots * (self._local_memory + max(self._local_grpc, self.playing))
        if room >= self._needed:
            self._short_since = None
        elif self._short_since is None:
            self._short_since = now
        elif now - self._short_since > SAY_SECONDS:
            self._short_since = float("inf")
            few = f"a batch joins {self._needed} unrolls, and the actors that play have room for {room}"
            self._say(f"{few if room else 'no actor plays'}; waiting for actors: pronk actor {self.address}")
