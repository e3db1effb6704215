"""One body over every transport: unrolls go up whole and in order, parameters come down new and never torn."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import astuple, replace
from typing import NamedTuple

import numpy as np
import pytest
from through_grpc import gateway

from pronk.layout import UnrollLayout
from pronk.transport import ActorPort, Closed, LearnerPort
from pronk.transport.grpc_actor import GrpcActorPort
from pronk.transport.local import LocalTransport
from pronk.transport.shared_memory import SharedMemoryActorPort, SharedMemoryTransport
from pronk.types import ActionSpec, ArraySpec, EnvSpec, Parameters, Unroll, leaves, unroll_specs

PATIENCE = 10.0  # seconds after which something that waits counts as stuck
NBYTES = 1000
SLOTS = 2
SPEC = EnvSpec(
    {
        "picture": ArraySpec((5, 3), "uint8"),
        "numbers": {"real": ArraySpec((), "float32"), "whole": ArraySpec((2,), "int64")},
    },
    ActionSpec((2,), (3, 4)),
)
LAYOUT = UnrollLayout(unroll_specs(SPEC, {"hidden": ArraySpec((7,), "float32")}, length=3, envs=2))


class Pair(NamedTuple):
    """The two ends of one transport."""

    learner: LearnerPort
    actor: ActorPort


def local() -> Iterator[Pair]:
    transport = LocalTransport(LAYOUT)
    yield Pair(transport, transport)


def shared_memory() -> Iterator[Pair]:
    with SharedMemoryTransport(LAYOUT, NBYTES, actors=1, slots=SLOTS) as transport:
        yield Pair(transport, join(transport, 0))


class Arrives:
    """An actor's port whose unrolls have arrived when the block is left: what is on its way is nowhere to be seen."""

    def __init__(self, port: GrpcActorPort, transport: SharedMemoryTransport) -> None:
        self._port, self._transport, self.parameters = port, transport, port.parameters

    @contextlib.contextmanager
    def unroll(self) -> Iterator[Unroll]:
        with self._port.unroll() as unroll:
            yield unroll
        deadline = time.monotonic() + PATIENCE
        while self._transport.delivered(0) < self._port.sent and time.monotonic() < deadline:
            time.sleep(0.001)
            assert self._transport.waiting >= 0  # looks


def grpc() -> Iterator[Pair]:
    with gateway(LAYOUT, SLOTS) as served:
        yield Pair(served.port, Arrives(served.join(LAYOUT), served.port))


def join(transport: SharedMemoryTransport, actor: int) -> SharedMemoryActorPort:
    """An actor's port in this process: the socket is duplicated as it would be by starting another."""
    ticket, inherited = transport.connect(actor)
    with inherited:
        return SharedMemoryActorPort(replace(ticket, socket=os.dup(ticket.socket)), LAYOUT, NBYTES)


@pytest.fixture(params=[local, shared_memory, grpc], ids=lambda make: make.__name__)
def pair(request, monkeypatch) -> Iterator[Pair]:
    monkeypatch.setattr("pronk.transport.session.validate_unroll", lambda *_: None)  # any bytes at all are sent here
    monkeypatch.setattr("pronk.transport.validation.Magnitudes.check", lambda *_: None)
    yield from request.param()


def fill(unroll: Unroll, seed: int) -> None:
    """Any bytes at all, NaNs with payloads among them."""
    random = np.random.default_rng(seed)
    for _, array in leaves(unroll._asdict()):
        raw = array.view(np.uint8) if array.shape else array
        raw[...] = random.integers(2 if array.dtype == bool else 256, size=raw.shape)


def as_bytes(unroll: Unroll) -> list[tuple[str, bytes]]:
    return [(path, array.tobytes()) for path, array in leaves(unroll._asdict())]


def filled(seed: int) -> list[tuple[str, bytes]]:
    unroll = LAYOUT.allocate()
    fill(unroll, seed)
    return as_bytes(unroll)


def send(port: ActorPort, seed: int) -> None:
    with port.unroll() as unroll:
        fill(unroll, seed)


def test_what_is_filled_arrives_bit_for_bit_and_in_order(pair):
    seeds = iter(range(100))
    for count in (1, 2, 2, 1, 2, 1, 1, 2):
        sent = [next(seeds) for _ in range(count)]
        for seed in sent:
            send(pair.actor, seed)
        assert pair.learner.waiting == count
        with pair.learner.unrolls(count) as unrolls:
            assert [as_bytes(unroll) for unroll in unrolls] == [filled(seed) for seed in sent]
        assert pair.learner.waiting == 0


def test_the_oldest_come_first_however_few_are_taken(pair):
    send(pair.actor, 0)
    for seed in range(1, 9):
        send(pair.actor, seed)
        with pair.learner.unrolls(1) as [unroll]:
            assert as_bytes(unroll) == filled(seed - 1)


def test_a_learner_that_waits_lets_others_act(pair):
    seeds = list(range(SLOTS))
    pair.learner.while_waiting = lambda: send(pair.actor, seeds.pop(0)) if seeds else None
    with pair.learner.unrolls(SLOTS) as unrolls:
        assert [as_bytes(unroll) for unroll in unrolls] == [filled(seed) for seed in range(SLOTS)]


def test_what_the_learner_holds_is_not_written_to(pair):
    send(pair.actor, 1)
    with pair.learner.unrolls(1) as [held]:
        send(pair.actor, 2)
        assert as_bytes(held) == filled(1)
        with pair.learner.unrolls(1) as [other]:
            assert as_bytes(other) == filled(2)
            assert as_bytes(held) == filled(1)


def test_leaving_the_block_frees_even_by_an_error(pair):
    for seed in range(3 * SLOTS):
        send(pair.actor, seed)
        with pytest.raises(ZeroDivisionError), pair.learner.unrolls(1):
            raise ZeroDivisionError


def test_what_is_freed_is_used_again(pair):
    used = []  # keeps what would be thrown away
    for _ in range(10):
        with pair.actor.unroll() as unroll:
            used.append(unroll)
        with pair.learner.unrolls(1):
            pass
    assert len({unroll.reward.ctypes.data for unroll in used}) <= SLOTS


def test_a_block_that_raises_sends_nothing(pair):
    with contextlib.suppress(ZeroDivisionError), pair.actor.unroll() as unroll:
        fill(unroll, 1)
        raise ZeroDivisionError
    assert pair.learner.waiting == 0
    send(pair.actor, 2)
    with pair.learner.unrolls(1) as [unroll]:
        assert as_bytes(unroll) == filled(2)


def test_a_block_that_raises_keeps_its_place_free(pair):
    def fail_often_then_send() -> None:
        for _ in range(SLOTS):
            with contextlib.suppress(ZeroDivisionError), pair.actor.unroll():
                raise ZeroDivisionError
        with contextlib.suppress(Closed):  # if it waited in vain until the end of the test
            send(pair.actor, 3)

    actor = threading.Thread(target=fail_often_then_send, daemon=True)
    actor.start()
    actor.join(PATIENCE)
    assert pair.learner.waiting == 1


def test_parameters_are_the_newest_and_copied(pair):
    block = np.arange(NBYTES, dtype=np.uint8)
    for version in (0, 1, 5, 6, 7):
        block[:] += 1
        pair.learner.publish(Parameters(version, block))
        wanted = block.tobytes()
        block[:] ^= 255  # the learner's next step changes its own weights
        for _ in range(2):
            parameters = pair.actor.parameters()
            assert (parameters.version, parameters.block.tobytes()) == (version, wanted)
        block[:] ^= 255


def test_an_older_version_published_later_is_still_the_newest(pair):
    for version in (7, 3):  # a checkpoint was restored
        pair.learner.publish(Parameters(version, np.full(NBYTES, version, np.uint8)))
        assert pair.actor.parameters().version == version


@pytest.fixture
def shared():
    with SharedMemoryTransport(LAYOUT, NBYTES, actors=3, slots=SLOTS) as transport:
        yield transport


def test_an_actor_without_a_free_slot_waits_until_the_learner_is_done_with_one(shared):
    port = join(shared, 0)
    sent = []

    def send_three() -> None:
        for seed in range(SLOTS + 1):
            send(port, seed)
            sent.append(seed)

    thread = threading.Thread(target=send_three, daemon=True)
    thread.start()
    with shared.unrolls(1) as [unroll]:
        deadline = time.monotonic() + PATIENCE
        while len(sent) < SLOTS and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.1)
        assert sent == list(range(SLOTS))
        assert as_bytes(unroll) == filled(0)
    thread.join(PATIENCE)
    assert sent == list(range(SLOTS + 1))


def test_actors_do_not_touch_one_another(shared):
    ports = [join(shared, actor) for actor in range(3)]
    for round_ in range(4):
        seeds = [10 * round_ + actor for actor in range(3)]
        for port, seed in zip(ports, seeds, strict=True):
            send(port, seed)
        with shared.unrolls(3) as unrolls:
            assert sorted(map(as_bytes, unrolls)) == sorted(map(filled, seeds))


def test_an_actor_that_fills_when_the_learner_hangs_up_is_told():
    with SharedMemoryTransport(LAYOUT, NBYTES, actors=1, slots=SLOTS) as transport:
        port = join(transport, 0)
        block = port.unroll()
        fill(block.__enter__(), 1)
    with pytest.raises(Closed):
        block.__exit__(None, None, None)


def test_an_actor_that_waits_when_the_learner_hangs_up_is_told():
    with SharedMemoryTransport(LAYOUT, NBYTES, actors=1, slots=SLOTS) as transport:
        port = join(transport, 0)
        for seed in range(SLOTS):
            send(port, seed)
    with pytest.raises(Closed), port.unroll():
        pytest.fail("there is no free slot")


def test_what_an_actor_sent_before_its_end_arrives_and_its_next_life_has_the_other_slots(shared):
    port = join(shared, 0)
    send(port, 1)
    unfinished = port.unroll()
    fill(unfinished.__enter__(), 2)
    del unfinished, port  # as a killed process: nothing is said, the socket is closed
    again = join(shared, 0)
    send(again, 3)
    with shared.unrolls(2) as unrolls:
        assert [as_bytes(unroll) for unroll in unrolls] == [filled(1), filled(3)]
    for seed in (4, 5):
        send(again, seed)
    with shared.unrolls(2) as unrolls:
        assert [as_bytes(unroll) for unroll in unrolls] == [filled(4), filled(5)]


def test_a_gateway_may_have_more_slots_than_a_socket_can_announce():
    """`gateway.max_actors` may be 100,000."""
    with SharedMemoryTransport(LAYOUT, NBYTES, actors=0, slots=SLOTS, gateway_slots=SLOTS * 100_000) as transport:
        connecting = threading.Thread(target=transport.connect, args=[0], daemon=True)
        connecting.start()
        connecting.join(PATIENCE)
        assert not connecting.is_alive()


def test_a_learner_frees_more_slots_than_a_socket_has_room_for_while_the_gateway_is_stopped():
    slots = 3000
    with SharedMemoryTransport(LAYOUT, NBYTES, actors=0, slots=SLOTS, gateway_slots=slots) as transport:
        port = join(transport, 0)

        def places() -> list[int]:
            """Fill every slot; where each is in memory."""
            used = []
            for count in range(1, slots + 1):
                assert transport.waiting == count - 1  # looks, and sends what there is room for by now
                with port.unroll() as unroll:
                    used.append(unroll.reward.ctypes.data)
            return used

        def take_all() -> None:
            with transport.unrolls(slots):
                pass

        before = places()
        taking = threading.Thread(target=take_all, daemon=True)
        taking.start()
        taking.join(PATIENCE)
        is_stuck = taking.is_alive()
        assert places() == before, "all are freed, in their order"
        assert not is_stuck


def test_the_end_of_a_run_does_not_wait_for_a_gateway_that_is_stopped():
    slots = 3000
    transport = SharedMemoryTransport(LAYOUT, NBYTES, actors=0, slots=SLOTS, gateway_slots=slots)
    port = join(transport, 0)
    for count in range(slots):
        assert transport.waiting == count
        with port.unroll():
            pass

    def end() -> None:
        with transport, transport.unrolls(slots):
            pass

    ending = threading.Thread(target=end, daemon=True)
    ending.start()
    ending.join(PATIENCE)
    assert not ending.is_alive()


READER = """
import sys, time
sys.path[:] = {path!r}
import numpy as np
from pronk.transport.shared_memory import SharedMemoryActorPort, Ticket
from test_transport_contract import LAYOUT
port = SharedMemoryActorPort(Ticket(*{ticket!r}), LAYOUT, {nbytes})
with port.unroll():
    pass
last, seen = -1, 0
while last < {versions}:
    version, block = port.parameters()
    words = block.view(np.int64)
    assert version >= last, (version, last)
    assert words.min() == words.max() == max(0, version), (version, words.min(), words.max())
    seen += version != last
    last = version
with port.unroll() as unroll:
    unroll.version[:] = seen
"""


def test_another_process_never_reads_torn_or_older_parameters():
    nbytes, rounds, several = 8_000_000, 40, 4
    words = np.zeros(nbytes // 8, np.int64)  # every word is the version: torn is what has two kinds
    with SharedMemoryTransport(LAYOUT, nbytes, actors=1, slots=2) as transport:
        ticket, inherited = transport.connect(0)
        program = READER.format(
            path=[os.path.dirname(__file__), *sys.path],
            ticket=astuple(ticket),
            nbytes=nbytes,
            versions=rounds * several,
        )
        with inherited:
            command = [sys.executable, "-c", program]
            reader = subprocess.Popen(command, pass_fds=ticket.descriptors, stderr=subprocess.PIPE, text=True)
        try:
            transport.while_waiting = lambda: None if reader.poll() is None else pytest.fail(reader.communicate()[1])
            with transport.unrolls(1):
                pass  # it is there
            for version in range(1, rounds * several + 1):
                words[:] = version
                transport.publish(Parameters(version, words.view(np.uint8)))
                if version % several == 0:  # let it begin to read, stop it there, and overwrite both halves
                    reader.send_signal(signal.SIGCONT)
                    time.sleep(0.0005 * (version % 9))
                    reader.send_signal(signal.SIGSTOP)
            reader.send_signal(signal.SIGCONT)
            _, complaint = reader.communicate(timeout=6 * PATIENCE)
        finally:
            reader.kill()
        assert reader.returncode == 0, complaint
        with transport.unrolls(1) as [unroll]:
            assert unroll.version[0] > 1
