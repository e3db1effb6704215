"""The gateway lets in who may, and only what is right; everybody else is told why, noted once, and harms nobody."""

import contextlib
import re
import threading
import time

import grpc
import numpy as np
import pytest
from through_grpc import (
    LAYOUT,
    NBYTES,
    PATIENCE,
    gateway,
    hello,
    honest,
    make_certificate,
    ready,
    talk_raw,
    unroll_message,
)

from pronk.layout import UnrollLayout
from pronk.processes.messages import ActorLeft
from pronk.transport import Closed
from pronk.transport.frames import MAX_JSON_BYTES, METHOD, Kind, pack, pack_json
from pronk.transport.grpc_actor import READS, Connection, GrpcActorPort, GrpcReader, LearnerUnavailable
from pronk.transport.security import Credentials
from pronk.types import ActionSpec, ArraySpec, EnvSpec, Parameters, UserError, unroll_specs

codes = grpc.StatusCode


def until(condition, what="it"):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.01)


def send(port, value=0.0, version=0):
    with port.unroll() as unroll:
        honest(unroll, version, value)


def send_several(port):
    for _ in range(3):
        send(port)


def take(served, count=1):
    until(lambda: served.port.waiting >= count, f"{count} unrolls")
    with served.port.unrolls(count) as unrolls:
        return [float(unroll.observation["view"][0, 0, 0]) for unroll in unrolls]


@pytest.fixture(scope="module")
def served():
    with gateway(LAYOUT) as served:
        yield served


@pytest.fixture(scope="module")
def good(served):
    """An actor that plays all the while."""
    return served.join()


# Everything that a stranger can get wrong once the conversation has begun, and what he is told.
WRONG = {
    "no hello": ([ready()], codes.INVALID_ARGUMENT, "READY came where HELLO was expected"),
    "unroll at once": ([unroll_message()], codes.INVALID_ARGUMENT, "UNROLL came where HELLO was expected"),
    "random bytes": (
        [np.random.default_rng(1).bytes(500)],
        codes.INVALID_ARGUMENT,
        "does not start with a frame header",
    ),
    "nothing": ([b""], codes.INVALID_ARGUMENT, "0 bytes is too short for a frame"),
    "unknown kind": ([pack(Kind.HELLO).replace(b"\x01", b"\x63", 1)], codes.INVALID_ARGUMENT, "kind of frame: 99"),
    "no JSON": ([pack(Kind.HELLO, b"\x80\x04")], codes.INVALID_ARGUMENT, "does not hold JSON"),
    "protocol": ([hello(protocol=99)], codes.FAILED_PRECONDITION, "speaks protocol 2, the actor 99"),
    "layout": (
        [hello(), pack_json(Kind.READY, {"layout": "0" * 16})],
        codes.FAILED_PRECONDITION,
        "another layout",
    ),
    "truncated": ([hello(), ready(), unroll_message()[:-1]], codes.INVALID_ARGUMENT, "a block of"),
    "another size": (
        [hello(), ready(), pack(Kind.UNROLL, bytes(LAYOUT.nbytes - 64))],
        codes.INVALID_ARGUMENT,
        "an unroll of",
    ),
    "oversized": (
        [hello(), ready(), unroll_message() + bytes(MAX_JSON_BYTES)],
        codes.RESOURCE_EXHAUSTED,
        "larger than max",
    ),
    "oversized talk": ([hello(), pack(Kind.READY, bytes(MAX_JSON_BYTES))], codes.RESOURCE_EXHAUSTED, "larger than max"),
    "compressed with nothing known": (
        [hello(), ready(), pack(Kind.UNROLL, b"x", 0, encoding=9, nbytes=LAYOUT.nbytes)],
        codes.INVALID_ARGUMENT,
        "unknown compression 9",
    ),
    "replayed": (
        [hello(), ready(), unroll_message(0), unroll_message(0)],
        codes.INVALID_ARGUMENT,
        "number 0 came where 1 was expected",
    ),
    "out of order": (
        [hello(), ready(), unroll_message(1), unroll_message(0)],
        codes.INVALID_ARGUMENT,
        "number 1 came where 0 was expected",
    ),
    "without credit": (
        [hello(), ready(), *(unroll_message(number) for number in range(5))],
        codes.INVALID_ARGUMENT,
        "without credit",
    ),
    "action": ([hello(), ready(), unroll_message(action=3)], codes.INVALID_ARGUMENT, "action holds a label"),
    "not finite": ([hello(), ready(), unroll_message(reward=np.nan)], codes.INVALID_ARGUMENT, "reward holds a value"),
    "absurd": ([hello(), ready(), unroll_message(reward=1e18)], codes.INVALID_ARGUMENT, "reward holds 1e+18"),
    "absurd beside the others": (
        [hello(), ready(), unroll_message(episode_return=2e6)],
        codes.INVALID_ARGUMENT,
        "episode_return holds 2e+06, where the others sent 0 at most",
    ),
    "version": ([hello(), ready(), unroll_message(version=9999)], codes.INVALID_ARGUMENT, "version holds"),
    "unroll of a reader": (
        [hello(reads=True), unroll_message()],
        codes.INVALID_ARGUMENT,
        "UNROLL came where LEAVE was expected",
    ),
    "observations where actors act": (
        [hello(), ready(), pack(Kind.ACT, bytes(64))],
        codes.INVALID_ARGUMENT,
        "ACT came where LEAVE was expected",
    ),
    "hello twice": ([hello(), ready(), hello()], codes.INVALID_ARGUMENT, "HELLO came where LEAVE was expected"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_bad_client_is_told_why_and_the_others_go_on(case, served, good):
    messages, code, reason = WRONG[case]
    before = served.port.delivered(good.connection.welcome["actor"])
    for _ in range(2):
        told = talk_raw(served, messages)
        assert told[0] is code, told
        assert reason in told[1]
    send(good, value=7.0)
    until(lambda: served.port.waiting and served.port.delivered(good.connection.welcome["actor"]) > before)
    arrived = take(served, served.port.waiting)
    whole = {"replayed": 2, "without credit": 4}.get(case, 0)  # what was right before it went wrong
    assert sorted(arrived) == sorted([7.0] + [0.0] * whole)


def without_numbers(line):
    return re.sub(r"[\d,]+", "#", line)


def test_each_reason_is_noted_once():
    with gateway(LAYOUT) as served:
        good = served.join()  # to compare the others with
        send(good)
        take(served)
        for messages, _, _ in WRONG.values():
            for _ in range(2):
                talk_raw(served, messages)
            take(served, served.port.waiting)  # what was right before it went wrong; it would fill the slots
    for _, code, reason in WRONG.values():
        if code is not codes.RESOURCE_EXHAUSTED:  # gRPC itself cuts these off; the log has it as the end of an actor
            reason = without_numbers(reason)  # other numbers do not make it another reason
            noted = [line for line in map(without_numbers, served.log) if reason in line and "refused" in line]
            assert len(noted) == 1, (reason, served.log)
    assert "cut off for a message larger than an unroll" in "".join(served.log)


def test_a_token_is_wanted_where_there_is_one(capfd):
    with gateway(credentials=Credentials("right")) as served:
        for _ in range(3):
            assert talk_raw(served, [hello()], "wrong") == (codes.UNAUTHENTICATED, "the token is not the learner's")
            assert talk_raw(served, [hello()])[0] is codes.UNAUTHENTICATED
        with pytest.raises(UserError, match="the token is not the learner's"):
            served.connect(token="wrong")
        send(served.join())
        take(served)
    log = "".join(served.log)
    assert log.count("the token is not the learner's") == 1
    assert log.count("none was sent") == 1
    assert "right" not in log + "".join(capfd.readouterr())


def test_only_the_learners_own_may_say_who_they_are():
    with gateway(first_index=3) as served:
        assert Connection(served.address, Credentials(), 8.0, {"actor": 1, "life": 5}).welcome["actor"] == 3
        own = Connection(served.address, Credentials("inner"), 8.0, {"actor": 1, "life": 5}).welcome
        assert (own["actor"], own["life"]) == (1, 5)
    with gateway(open=False) as served:
        assert talk_raw(served, [hello()])[0] is codes.UNAUTHENTICATED
        assert talk_raw(served, [hello(actor=0, life=0), pack_json(Kind.LEAVE, {"why": "x"})], "inner")[0] is codes.OK


def test_tls_wants_the_right_certificates(tmp_path):
    learner, other = make_certificate(tmp_path), make_certificate(tmp_path, "other")
    certificate, key = learner.certificate.read_bytes(), learner.private_key.read_bytes()
    with gateway(credentials=Credentials("right", certificate, key)) as served:
        with pytest.raises(UserError, match="not signed by an authority that is trusted here"):
            Connection(served.address, Credentials("right", authority=other.certificate.read_bytes()), 8.0)
        with pytest.raises(LearnerUnavailable, match="does the learner use TLS"):
            Connection(served.address, Credentials("right"), 8.0)
        send(served.join())
        assert take(served) == [0.0]
    with gateway() as served, pytest.raises(UserError, match="does not use TLS"):
        Connection(served.address, Credentials(authority=certificate), 8.0)


def test_actors_may_have_to_show_certificates(tmp_path):
    learner, authority = make_certificate(tmp_path), make_certificate(tmp_path, "authority")
    actor = make_certificate(tmp_path, "actor", signed_by=authority)
    certificate = learner.certificate.read_bytes()
    shown = Credentials(None, certificate, learner.private_key.read_bytes(), authority.certificate.read_bytes())
    with gateway(credentials=shown) as served:
        with pytest.raises((LearnerUnavailable, UserError)):
            Connection(served.address, Credentials(authority=certificate), 8.0)
        mine = Credentials(None, actor.certificate.read_bytes(), actor.private_key.read_bytes(), certificate)
        assert Connection(served.address, mine, 8.0).welcome["learner"] == "test"


def test_there_is_room_for_so_many_and_again_when_one_has_left():
    with gateway(max_actors=2) as served:
        first, second = served.join(), served.join()
        with pytest.raises(LearnerUnavailable, match=r"has its 2 actors already \(gateway.max_actors\)"):
            served.connect()
        first.connection.close("enough")
        until(lambda: any("enough" in line for line in served.log))
        third = served.join()
        assert third.connection.welcome["actor"] == first.connection.welcome["actor"]
        assert third.connection.welcome["life"] == 1
        for port in (second, third):
            send(port)
        assert len(take(served, 2)) == 2


def test_a_place_is_for_who_plays():
    with gateway(max_actors=2) as served:
        good = served.join()
        for _ in range(5):
            served.connect()  # HELLO, and nothing more
        late = served.join()
        assert late.connection.welcome["actor"] != good.connection.welcome["actor"]
        for port in (good, late):
            send(port)
        assert len(take(served, 2)) == 2
        with pytest.raises(LearnerUnavailable, match="has its 2 actors already"):
            served.connect()
        told = "another actor came for its place before it was ready"
        until(lambda: any(told in line for line in served.log), "the refusal")


def test_who_only_says_hello_takes_the_places_of_his_own_address():
    class One:
        playing = False

        def __init__(self, index, peer):
            self.index = self.number = index
            self.peer = peer

    with gateway(max_actors=8) as served:
        served.gateway._sessions = {One(0, "honest"), *(One(number, "flood") for number in (1, 2, 3))}
        assert served.gateway._idle_place().index == 1
        served.gateway._sessions = set()
        assert served.gateway._idle_place() is None


def test_who_says_nothing_has_to_go(monkeypatch):
    monkeypatch.setattr("pronk.transport.session.HELLO_SECONDS", 0.5)
    with gateway(timeout_seconds=0.5) as served:
        stop = threading.Event()

        def later(*messages):
            yield from messages
            stop.wait(PATIENCE)

        channel = grpc.insecure_channel(served.address)
        for messages, reason in [
            ([], "no HELLO"),
            ([hello()], "not ready"),
            ([hello(), ready()], "no unroll for 0.5 s"),
        ]:
            call = channel.stream_stream(METHOD, None, None)(later(*messages))
            with pytest.raises(grpc.RpcError) as error:
                list(call)
            assert error.value.code() is codes.DEADLINE_EXCEEDED
            assert reason in error.value.details()
        stop.set()
        channel.close()
        until(lambda: len([line for line in served.log if "refused" in line]) == 3)


def test_an_actor_that_waits_for_the_learner_is_not_silent():
    with gateway(timeout_seconds=1.0) as served:
        port = served.join()
        send(port, 1.0)
        send(port, 2.0)
        time.sleep(2.0)
        assert take(served, 2) == [1.0, 2.0]
        send(port, 3.0)
        assert take(served) == [3.0]


def test_a_learner_that_takes_nothing_is_mentioned_once(monkeypatch):
    monkeypatch.setattr("pronk.transport.grpc_actor.QUIET_SECONDS", 0.05)
    with gateway() as served:
        port = served.join()
        mentioned = []
        port.connection.on_quiet = lambda: mentioned.append("quiet")
        send(port, 1.0)
        send(port, 2.0)
        third = threading.Thread(target=send, args=(port, 3.0))
        third.start()
        until(lambda: mentioned)
        assert [*take(served), *take(served), *take(served)] == [1.0, 2.0, 3.0]
        third.join(PATIENCE)
        assert mentioned == ["quiet"]


def test_a_slow_reader_makes_only_itself_wait(monkeypatch):
    monkeypatch.setattr("pronk.transport.session.WRITE_SECONDS", 4.0)
    nbytes = 8_000_000
    with gateway(nbytes=nbytes) as served:
        good = GrpcActorPort(served.connect(), LAYOUT, nbytes)
        channel = grpc.insecure_channel(served.address, [("grpc.max_receive_message_length", -1)])
        stop = threading.Event()

        def asks():
            yield from [hello(), ready(), pack(Kind.PULL)]
            stop.wait(PATIENCE)

        lazy = channel.stream_stream(METHOD, None, None)(asks())  # and never reads
        for round_ in range(5):
            send(good, round_)
            assert take(served) == [round_]
            good.parameters()
        until(lambda: any("took no frame" in line for line in served.log), "the slow reader's end")
        stop.set()
        lazy.cancel()
        channel.close()
        send(good)
        assert take(served) == [0.0]


def test_credit_comes_back_when_the_learner_is_done_and_not_before():
    with gateway(slots=2) as served:
        port, sent = served.join(), []

        def play():
            for value in range(5):
                send(port, value)
                sent.append(value)

        thread = threading.Thread(target=play, daemon=True)
        thread.start()
        until(lambda: served.port.waiting == 2)
        time.sleep(0.2)
        assert sent == [0, 1]
        with served.port.unrolls(1):
            time.sleep(0.2)
            assert sent == [0, 1]
        until(lambda: sent == [0, 1, 2])
        assert take(served, 2) == [1.0, 2.0]
        assert take(served, 2) == [3.0, 4.0]
        thread.join(PATIENCE)


def test_a_learner_that_reads_nothing_for_long_holds_up_no_stream():
    many = 400  # slot numbers for which its socket has no room on Linux
    with gateway(LAYOUT, slots=many, max_actors=2) as served:
        port = served.join()
        for number in range(many):
            send(port, value=number)
        until(lambda: len(served.gateway._owners) == many, "all unrolls")
        assert served.connect().welcome["learner"] == "test"
        assert take(served, many) == list(range(many))


def test_actors_that_come_and_go_faster_than_the_learner_takes_wait_for_a_slot():
    with gateway(slots=1, max_actors=1) as served:
        first = served.join()
        send(first, 1.0)
        until(lambda: served.port.waiting == 1)
        first.connection.close("bye")
        until(lambda: any("bye" in line for line in served.log))
        second = served.join()
        send(second, 2.0)  # there is credit, but the one slot is the learner's
        time.sleep(0.3)
        assert take(served) == [1.0]
        assert take(served) == [2.0]


def test_what_an_actor_sent_before_its_end_arrives():
    with gateway() as served:
        port = served.join()
        send(port, 1.0)
        until(lambda: served.port.waiting == 1)
        port.connection.close()
        until(lambda: isinstance(served.events[-1], ActorLeft))
        assert take(served) == [1.0]


def test_a_good_end_is_told_and_a_bad_one_leaves_hope():
    with gateway() as served:
        port = served.join()
        send(port)
        take(served)
    with pytest.raises(Closed):
        send_several(port)
    assert port.connection.finished
    with contextlib.suppress(ZeroDivisionError), gateway() as served:
        port = served.join()
        send(port)
        take(served)
        raise ZeroDivisionError
    with pytest.raises(Closed):
        send_several(port)
    assert not port.connection.finished
    assert isinstance(port.connection.reason(), LearnerUnavailable)


@pytest.mark.parametrize(("compression", "dtype"), [("lz4", "bfloat16"), ("zstd", "float16"), ("none", "float32")])
def test_what_is_made_smaller_for_the_way_arrives_the_same(compression, dtype):
    welcome = {"compression": compression, "learner": "test"}
    weights = np.linspace(-1, 1, NBYTES // 4, dtype=np.float32)
    layout = UnrollLayout(
        unroll_specs(EnvSpec(ArraySpec((84, 84, 4), "uint8"), ActionSpec((), (3,))), {}, length=20, envs=1)
    )
    with gateway(layout, welcome=welcome, parameters_dtype=dtype) as served:
        port = served.join(layout)
        served.port.publish(Parameters(5, weights.view(np.uint8)))
        got = port.parameters()
        assert got.version == 5
        assert np.allclose(got.block.view(np.float32), weights, rtol=2**-8, atol=1e-6)
        noise = np.random.default_rng(1).integers(256, size=(21, 1, 84, 84, 4), dtype=np.uint8)
        for frame in (noise, np.full_like(noise, 7)):  # what cannot be compressed, and what can
            with port.unroll() as unroll:
                unroll.observation[...] = frame
                unroll.version[...] = 5
                unroll.episode_return[...] = np.nan
            until(lambda: served.port.waiting)
            with served.port.unrolls(1) as [arrived]:
                assert np.array_equal(arrived.observation, frame)
                assert (arrived.version == 5).all()


def read(served, token=None):
    return GrpcReader(Connection(served.address, Credentials(token), 8.0, READS), NBYTES)


def test_a_reader_gets_parameters_and_the_end_but_no_number_and_no_credit():
    with gateway(max_actors=1, timeout_seconds=0.5) as served:
        reader, actor = read(served), served.join()
        assert "actor" not in reader.connection.welcome
        assert reader.connection.welcome["learner"] == "test"
        assert actor.connection.welcome["actor"] == 0
        for version in (1, 2):
            block = np.full(NBYTES, version, np.uint8)
            served.port.publish(Parameters(version, block))
            assert reader.parameters().version == version
            assert (reader.parameters().block == block).all()
            send(actor)
            take(served)
        actor.connection.close("enough")
        time.sleep(1.0)  # nobody expects anything of a reader
        assert reader.parameters().version == 2
        assert reader.connection.limit == 0
        assert served.port.room == 0
    assert [type(event).__name__ for event in served.events].count("ActorJoined") == 1
    with pytest.raises(Closed):
        reader.parameters()
    assert reader.connection.finished, "it was told that the run has ended"
    assert sum("reader joins" in line for line in served.log) == 1


def test_a_reader_that_is_gone_makes_room_for_another(monkeypatch):
    monkeypatch.setattr("pronk.transport.gateway.MOST_READERS", 1)
    with gateway() as served:
        first = read(served)
        with pytest.raises(LearnerUnavailable, match="has its 1 readers already"):
            read(served)
        first.connection.close("enough")
        until(lambda: any("reader leaves" in line for line in served.log))
        assert read(served).parameters().version == 0


def test_a_reader_shows_the_token_as_actors_do():
    with gateway(credentials=Credentials("right")) as served:
        with pytest.raises(UserError, match="the token is not the learner's"):
            read(served, "wrong")
        assert read(served, "right").parameters().version == 0
