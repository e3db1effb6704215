"""Who plays for the learner from other machines, in words, and not too many of them."""

from __future__ import annotations

import time

from pronk.actors.base import Play

SAY_SECONDS = 3.0  # between two words, and before the first about nobody being there


class Crowd:
    """Told how many play; says so when it changes, and when the learner waits for more than there are."""

    def __init__(self, play: Play) -> None:
        self._say, self._slots = play.say, play.config.actors.slots
        over_grpc = play.config.transport.name == "grpc"
        self._own, self._in_memory = (play.config.actors.count, 0) if over_grpc else (0, play.config.actors.count)
        self._needed = max(1, play.config.learner.batch_size // play.config.actors.envs)
        self.address = ""
        self.playing = 0  # through the gateway
        self._said = 0
        self._said_at = 0.0
        self._awaited_since: float | None = None

    def say_who_is_there(self) -> None:
        """If it is not what was said last."""
        others = max(0, self.playing - self._own)
        now = time.monotonic()
        if others == self._said or now - self._said_at < SAY_SECONDS:
            return
        change = f"{others - self._said} more" if others > self._said else f"{self._said - others} fewer"
        self._say(f"actors of other machines: {others} ({change})" if others else "no actor of another machine is left")
        self._said, self._said_at = others, now

    def say_who_is_awaited(self) -> None:
        """While the learner waits: once, when there is nobody, or too few for a batch."""
        now = time.monotonic()
        room = self._slots * (self._in_memory + max(self._own, self.playing))
        if room >= self._needed:
            self._awaited_since = None
        elif self._awaited_since is None:
            self._awaited_since = now
        elif now - self._awaited_since > SAY_SECONDS:
            self._awaited_since = float("inf")
            few = f"a batch joins {self._needed} unrolls, and the actors that play have room for {room}"
            self._say(f"{few if room else 'nobody plays'}; waiting for actors: pronk actor {self.address}")
