"""Observations that go up a stream come back as answers of the server; whoever asks wrongly is refused, alone."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace

import grpc
import numpy as np
import pytest
from through_grpc import LAYOUT, NBYTES, PATIENCE, Served, gateway, hello, honest, ready, talk_raw

from pronk.policies import RemoteActing
from pronk.processes.supervisor import Start
from pronk.transport import Closed
from pronk.transport.block_frame import BlockFrame
from pronk.transport.frames import Kind, pack
from pronk.transport.grpc_actor import GrpcActorPort
from pronk.transport.grpc_requests import GrpcRequests
from pronk.transport.mailboxes import Mailboxes, MailboxTicket, RequestLayouts
from pronk.transport.memory import anonymous_memory
from pronk.types import ArraySpec, Parameters, map_tree

N, P = 2, 3  # environments, and numbers in the view
OBSERVATION = {"view": ArraySpec((P,), "float32"), "label": ArraySpec((), "int64", (5,))}
LAYOUTS = RequestLayouts(OBSERVATION, {"core": ArraySpec((2,), "float32")}, P, N)
FIRST = np.array([True, False])
codes = grpc.StatusCode


class FakeServer:
    """Answers with what it sees plus the state, and adds 1 to the state. It can be stopped and started."""

    def __init__(self, mailboxes: int) -> None:
        self.memory = anonymous_memory(Mailboxes.nbytes(LAYOUTS, mailboxes))
        self._ends = socket.socketpair()  # the gateway's, the server's
        self.ticket, theirs = (MailboxTicket(self.memory, mailboxes, end.fileno()) for end in self._ends)
        self.acting = RemoteActing(Start({"ticket": asdict(self.ticket), "layouts": LAYOUTS.plain()}), {"sizes": None})
        self.mailboxes = Mailboxes(replace(theirs, socket=os.dup(theirs.socket)), LAYOUTS)
        self.mailboxes.socket.setblocking(False)
        self.works = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join(PATIENCE)
        os.close(self.memory)

    def _serve(self) -> None:
        while not self._over.is_set():
            select.select([self.mailboxes.socket], [], [], 0.05)
            if self.works.is_set():
                self.mailboxes.drain()
                for index in self.mailboxes.unanswered():
                    self._answer(index)
                self.mailboxes.ring()

    def _answer(self, index: int) -> None:
        mailbox = self.mailboxes[index]
        number = mailbox.requested
        before, after = mailbox.state_before(number)["core"], mailbox.state_before(number + 1)["core"]
        mailbox.policy[...] = mailbox.observation["view"] + before[:, :1]
        after[...] = before + 1
        mailbox.answer(number)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with contextlib.closing(FakeServer(mailboxes=4)) as made:
        made.works.set()
        yield made


class Player:
    """An actor that asks."""

    def __init__(self, served: Served) -> None:
        self.requests = GrpcRequests(served.connect())
        self.port = GrpcActorPort(self.requests._connection, LAYOUT, NBYTES, ahead=False)
        self.requests.open(LAYOUTS)

    def ask(self, value: float = 0.0) -> np.ndarray:
        return self.requests.ask({"view": np.full((N, P), value, np.float32), "label": np.full(N, 4)}, FIRST)

    def send(self) -> None:
        with self.port.unroll() as unroll:
            honest(unroll)


def until(condition, what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.01)


def test_answers_come_back_and_the_actor_keeps_the_state(server: FakeServer) -> None:
    with gateway(acting=server.acting) as served:
        players = [Player(served) for _ in range(3)]
        for step in range(5):
            for number, player in enumerate(players):
                before = player.requests.state
                np.testing.assert_array_equal(before["core"], np.full((N, 2), step))
                np.testing.assert_array_equal(player.ask(10.0 * number), np.full((N, P), 10.0 * number + step))
                np.testing.assert_array_equal(before["core"], np.full((N, 2), step), "it was left alone")
        served.port.publish(Parameters(7, np.zeros(NBYTES, np.uint8)))
        players[0].ask()
        assert players[0].requests.version == 7


def test_credit_brings_the_version(server: FakeServer) -> None:
    with gateway(acting=server.acting) as served:
        player = Player(served)
        for version in (0, 3):
            served.port.publish(Parameters(version, np.zeros(NBYTES, np.uint8)))
            for _ in range(2):
                player.send()
            until(lambda: served.port.waiting == 2, "both unrolls")
            with served.port.unrolls(2):
                pass
            player.port.connection.wait_for_credit(player.port._number)
            assert player.requests.version == version


def request(**changes: object) -> bytes:
    frame = BlockFrame(Kind.ACT, LAYOUTS.request, "none")
    for name, value in changes.items():
        map_tree(lambda array, value=value: array.fill(value), frame.values[name])
    return frame.packed()


def with_label(label: int) -> bytes:
    frame = BlockFrame(Kind.ACT, LAYOUTS.request, "none")
    frame.values["observation"]["label"][...] = label
    return frame.packed()


def with_first(byte: int) -> bytes:
    frame = BlockFrame(Kind.ACT, LAYOUTS.request, "none")
    frame.values["first"].view(np.uint8)[...] = byte
    return frame.packed()


WRONG = {
    "too early": ([hello(), request()], "ACT came where READY or LEAVE was expected"),
    "of a reader": ([hello(reads=True), request()], "ACT came where LEAVE was expected"),
    "truncated": ([hello(), ready(), request()[:-1]], "bytes where"),
    "too large": ([hello(), ready(), pack(Kind.ACT, bytes(4096))], "observations of 4,096 bytes where"),
    "shorter than it says": (
        [hello(), ready(), pack(Kind.ACT, b"short", nbytes=LAYOUTS.request.nbytes)],
        "5 bytes where",
    ),
    "compressed with nothing known": (
        [hello(), ready(), pack(Kind.ACT, b"x", encoding=9, nbytes=LAYOUTS.request.nbytes)],
        "unknown compression 9",
    ),
    "no such label": ([hello(), ready(), with_label(5)], "observation/label holds a label"),
    "a negative label": ([hello(), ready(), with_label(-1)], "observation/label holds a label"),
    "neither true nor false": ([hello(), ready(), with_first(7)], "first holds a byte"),
    "not finite": ([hello(), ready(), request(state=np.nan)], "state/core holds a value that is not finite"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_bad_request_is_refused_and_the_others_go_on(case: str, server: FakeServer) -> None:
    messages, reason = WRONG[case]
    with gateway(acting=server.acting) as served:
        good = Player(served)
        good.ask()
        code, told = talk_raw(served, messages)
        assert code is codes.INVALID_ARGUMENT, told
        assert reason in told
        np.testing.assert_array_equal(good.ask(1.0), np.full((N, P), 2.0))


@pytest.mark.parametrize(
    ("view", "label", "reason"),
    [(np.nan, 4, "observation/view holds a value that is not finite"), (0.0, 5, "observation/label holds a label")],
)
def test_an_actor_does_not_ask_what_would_be_refused(view: float, label: int, reason: str, server: FakeServer) -> None:
    """It would join and be refused for ever, because it asks the same again."""
    with gateway(acting=server.acting) as served:
        player = Player(served)
        with pytest.raises(ValueError, match=f"cannot request actions: {reason}"):
            player.requests.ask({"view": np.full((N, P), view), "label": np.full(N, label)}, FIRST)
        np.testing.assert_array_equal(player.ask(1.0), np.full((N, P), 1.0))


def test_while_there_is_no_server_one_actor_waits_and_others_are_served(server: FakeServer) -> None:
    with gateway(acting=server.acting, timeout_seconds=2.0) as served:
        waits, plays = Player(served), Player(served)
        server.works.clear()
        answers: list[np.ndarray] = []
        thread = threading.Thread(target=lambda: answers.append(waits.ask(5.0)), daemon=True)
        thread.start()
        began = time.monotonic()
        unrolls = 0
        while time.monotonic() - began < 4.0:  # longer than an actor may be silent
            plays.send()
            until(lambda: served.port.waiting == 1, "an unroll")
            with served.port.unrolls(1):
                unrolls += 1
            time.sleep(0.05)
        assert unrolls > 2
        assert answers == []
        server.works.set()
        thread.join(PATIENCE)
        np.testing.assert_array_equal(answers[0], np.full((N, P), 5.0))
        until(lambda: any("no unroll for 2 s" in line for line in served.log), "its time to run again")


def test_a_mailbox_is_free_again_when_the_request_of_an_actor_that_left_is_answered() -> None:
    with contextlib.closing(FakeServer(mailboxes=1)) as server, gateway(acting=server.acting) as served:
        leaves, stays = Player(served), Player(served)
        for player in (leaves, stays):
            threading.Thread(target=suppressed, args=(player.ask,), daemon=True).start()
            until(lambda: server.mailboxes.unanswered() == [0], "the request")
        leaves.port.connection.close()
        until(lambda: server.mailboxes.players == 1, "its end")
        server.works.set()
        until(lambda: stays.requests.state["core"].any(), "the answer to the other")
        stays.ask()
        assert server.mailboxes.unanswered() == []


def suppressed(ask) -> None:
    with contextlib.suppress(Closed):
        ask()


def test_a_gateway_that_replaces_another_gives_no_answer_to_the_wrong_actor(server: FakeServer) -> None:
    server.works.clear()
    with gateway(acting=server.acting) as served:
        killed = Player(served)
        threading.Thread(target=suppressed, args=(lambda: killed.ask(100.0),), daemon=True).start()
        until(lambda: server.mailboxes.unanswered() != [], "the request")
    server.mailboxes.drain()  # a server took the bell, and was killed, too
    with gateway(acting=server.acting) as served:
        players = [Player(served) for _ in range(4)]  # as many as mailboxes
        answers: dict[int, np.ndarray] = {}

        def ask(number: int) -> None:
            answers[number] = players[number].ask(float(number))

        for number in range(4):
            threading.Thread(target=ask, args=(number,), daemon=True).start()
        until(lambda: len(server.mailboxes.unanswered()) == 4, "a request in every mailbox")
        assert answers == {}
        server.works.set()
        until(lambda: len(answers) == 4, "all answers")
        for number, answer in answers.items():
            np.testing.assert_array_equal(answer, np.full((N, P), float(number)))


def test_the_server_knows_how_many_play(server: FakeServer) -> None:
    with gateway(acting=server.acting) as served:
        players = [Player(served) for _ in range(2)]
        until(lambda: server.mailboxes.players == 2, "both")
        players[0].port.connection.close("enough")
        until(lambda: server.mailboxes.players == 1, "the end of one")
    with gateway(acting=server.acting):
        until(lambda: server.mailboxes.players == 0, "a gateway without actors")


def test_an_actor_that_waits_for_an_answer_is_told_that_the_run_has_ended(server: FakeServer) -> None:
    server.works.clear()
    ended: list[type[BaseException]] = []

    def ask(player: Player) -> None:
        try:
            player.ask()
        except BaseException as error:
            ended.append(type(error))

    with gateway(acting=server.acting) as served:
        player = Player(served)
        thread = threading.Thread(target=ask, args=(player,), daemon=True)
        thread.start()
        until(lambda: server.mailboxes.unanswered() != [], "the request")
    thread.join(PATIENCE)
    assert ended == [Closed]
    assert player.port.connection.finished
