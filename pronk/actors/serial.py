"""Actors in the learner's own thread: they take turns whenever it waits for unrolls. Deterministic bit for bit."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

from pronk.actor import Actor, make_actor
from pronk.actors.base import ActorSetup, Watch
from pronk.actors.status import ActorState, StatusFile
from pronk.processes.failures import user_code
from pronk.transport import LearnerPort
from pronk.transport.local import LocalTransport


@contextlib.contextmanager
def running_actors(setup: ActorSetup) -> Iterator[tuple[LearnerPort, Watch]]:
    """`actors.count` actors over the local transport."""
    port = LocalTransport(setup.layout)
    port.publish(setup.parameters)
    with contextlib.ExitStack() as stack:
        actors: list[Actor] = []
        for index in range(setup.config.actors.count):
            with user_code(f"actor {index}"):
                made = make_actor(setup.config, lambda *_: port, index, 0, setup.generation)
                actors.append(stack.enter_context(made))
        turns, unrolls = itertools.cycle(enumerate(actors)), [0] * len(actors)
        status = StatusFile(setup)
        stack.callback(status.end)

        def play_one_unroll() -> None:
            index, actor = next(turns)
            with user_code(f"actor {index}"), setup.interrupts.at_once():
                actor.advance()
            unrolls[index] += 1

        def watch() -> None:
            setup.interrupts.check()
            status.update(lambda: [ActorState(index, "playing", count) for index, count in enumerate(unrolls)])

        port.while_waiting = play_one_unroll
        # The port holds the actors and they hold it: environments would live until the interpreter ends, and ALE
        # complains about that.
        stack.callback(setattr, port, "while_waiting", lambda: None)
        yield port, watch
