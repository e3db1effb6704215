"""Actors in the learner's own thread: they take turns whenever it waits for unrolls. Deterministic bit for bit."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

from pronk.actor import Actor, make_actor
from pronk.actors.base import Play, Watch
from pronk.actors.board import ActorState, Board
from pronk.processes.failures import user_code
from pronk.transport import LearnerPort
from pronk.transport.local import LocalTransport


@contextlib.contextmanager
def playing(play: Play) -> Iterator[tuple[LearnerPort, Watch]]:
    """`actors.count` actors over the local transport."""
    port = LocalTransport(play.layout)
    port.publish(play.parameters)
    with contextlib.ExitStack() as stack:
        actors: list[Actor] = []
        for index in range(play.config.actors.count):
            with user_code(f"actor {index}"):
                actors.append(stack.enter_context(make_actor(play.config, lambda *_: port, index, 0, play.generation)))
        turns, unrolls = itertools.cycle(enumerate(actors)), [0] * len(actors)
        board = Board(play)
        stack.callback(board.end)

        def let_one_play() -> None:
            index, actor = next(turns)
            with user_code(f"actor {index}"), play.interrupts.at_once():
                actor.advance()
            unrolls[index] += 1

        def watch() -> None:
            play.interrupts.check()
            board.show(lambda: [ActorState(index, "playing", count) for index, count in enumerate(unrolls)])

        port.while_waiting = let_one_play
        yield port, watch
