import itertools

import numpy as np
import pytest
import torch

from pronk.batcher import MOST_PASSES, Batcher
from pronk.layout import PER_ENVIRONMENT, UnrollLayout
from pronk.transport.local import LocalTransport
from pronk.types import ActionSpec, ArraySpec, EnvSpec, Unroll, leaves, map_unroll, unroll_specs

LENGTH = 3
OBSERVATION = {
    "picture": ArraySpec((2, 3), "uint8"),
    "deep": {"flag": ArraySpec((), "bool"), "numbers": ArraySpec((5,), "float32")},
    "label": ArraySpec((), "int64", (4,)),
}
STATE = {"hidden": ArraySpec((4,), "float32"), "cell": ArraySpec((2, 2), "float32")}
CPU = torch.device("cpu")


class Source:
    """A transport whose waiting learner is given unrolls of random bytes; it keeps a copy of each."""

    def __init__(self, envs: int, state: dict) -> None:
        self.specs = unroll_specs(EnvSpec(OBSERVATION, ActionSpec((2,), (3, 4))), state, LENGTH, envs)
        self.port = LocalTransport(UnrollLayout(self.specs))
        self.port.while_waiting = self.send
        self.sent: list[Unroll] = []
        self._random = np.random.default_rng(2)

    def send(self) -> None:
        with self.port.unroll() as unroll:
            for _, array in leaves(unroll._asdict()):
                top = 2 if array.dtype == bool else 256
                array.view(np.uint8)[...] = self._random.integers(top, size=array.view(np.uint8).shape)
            self.sent.append(map_unroll(np.copy, unroll))


def column(unroll: Unroll, index: int) -> dict[str, bytes]:
    """Everything an unroll or a batch says of one environment."""
    told = {}
    for name, field in unroll._asdict().items():
        for path, array in leaves(field, name):
            array = np.asarray(array)
            told[path] = (array[index] if name in PER_ENVIRONMENT else array[:, index]).tobytes()
    return told


def assert_columns_are(batch: Unroll, wanted: list[tuple[Unroll, int]]) -> None:
    assert batch.version.shape == (len(wanted),)
    assert batch.first.shape == (LENGTH + 1, len(wanted))
    for index, (unroll, environment) in enumerate(wanted):
        assert column(batch, index) == column(unroll, environment)


@pytest.mark.parametrize("state", [STATE, {}], ids=["lstm", "none"])
@pytest.mark.parametrize(("envs", "batch_size"), [(2, 6), (6, 2), (4, 4), (1, 5), (5, 1)])
def test_every_environment_of_every_unroll_is_one_intact_column(envs, batch_size, state):
    source = Source(envs, state)
    batcher = Batcher(source.port, source.specs, batch_size, CPU)
    batches = [map_unroll(np.copy, batcher.next().arrays) for _ in range(3 * max(1, envs // batch_size))]
    everyone = list(itertools.product(source.sent, range(envs)))
    assert len(everyone) == len(batches) * batch_size
    for index, batch in enumerate(batches):
        assert_columns_are(batch, everyone[index * batch_size : (index + 1) * batch_size])


@pytest.mark.parametrize(("envs", "batch_size"), [(2, 6), (6, 2)])
def test_the_learner_and_the_metrics_get_the_same(envs, batch_size):
    source = Source(envs, STATE)
    batcher = Batcher(source.port, source.specs, batch_size, CPU)
    for _ in range(4):
        batch = batcher.next()
        for (path, tensor), (_, array) in zip(
            leaves(batch.tensors._asdict()), leaves(batch.arrays._asdict()), strict=True
        ):
            assert isinstance(tensor, torch.Tensor)
            assert (tuple(tensor.shape), tensor.numpy().dtype) == (array.shape, array.dtype), path
            assert tensor.numpy().tobytes() == array.tobytes(), path


@pytest.mark.parametrize(("envs", "batch_size"), [(2, 6), (6, 2), (4, 4)])
def test_a_batch_stays_as_it_is_while_the_next_is_made(envs, batch_size):
    source = Source(envs, STATE)
    batcher = Batcher(source.port, source.specs, batch_size, CPU)
    held = batcher.next()
    before = map_unroll(np.copy, held.arrays)
    batcher.next()
    source.send()  # into memory that the batcher has freed
    assert_columns_are(held.arrays, [(before, index) for index in range(batch_size)])


@pytest.mark.parametrize(("envs", "batch_size"), [(2, 6), (6, 2), (4, 4)])
def test_passes_go_over_the_same_unrolls_again_and_say_so(envs, batch_size):
    source, batches = Source(envs, STATE), max(1, envs // batch_size)
    batcher = Batcher(source.port, source.specs, batch_size, CPU, passes=3)
    for _ in range(2):
        given = [batcher.next() for _ in range(3 * batches)]
        assert [batch.fresh.tolist() for batch in given] == [
            [fresh] * batch_size for fresh in [True] * batches + [False] * 2 * batches
        ]
        for index, batch in enumerate(given[batches:]):
            original = given[index % batches].arrays
            assert_columns_are(batch.arrays, [(original, column) for column in range(batch_size)])
    assert len(source.sent) == 2 * max(1, batch_size // envs)


def test_a_batch_takes_no_more_unrolls_than_it_needs():
    source = Source(2, {})
    batcher = Batcher(source.port, source.specs, 6, CPU)
    batcher.next()
    assert (len(source.sent), source.port.waiting) == (3, 0)


def test_on_a_cpu_nothing_is_staged_ahead():
    source = Source(2, {})
    batcher = Batcher(source.port, source.specs, 2, CPU)
    source.send()
    batcher.prefetch()
    assert source.port.waiting == 1


def test_for_another_device_a_batch_is_staged_ahead_once_without_waiting():
    source = Source(2, {})
    batcher = Batcher(source.port, source.specs, 4, torch.device("meta"))  # not the CPU, and everywhere to be had
    source.send()
    batcher.prefetch()
    assert (len(source.sent), source.port.waiting) == (1, 1)
    for _ in range(3):
        source.send()
    batcher.prefetch()
    batcher.prefetch()
    assert (len(source.sent), source.port.waiting) == (4, 2)
    first, second = (map_unroll(np.copy, batcher.next().arrays) for _ in range(2))
    everyone = list(itertools.product(source.sent, range(2)))
    assert_columns_are(first, everyone[:4])
    assert_columns_are(second, everyone[4:])


def test_passes_idle_learns_again_only_while_nothing_new_has_come():
    source = Source(envs=4, state={})
    batcher = Batcher(source.port, source.specs, 2, CPU, passes="idle")

    def versions(count):
        return [
            (bytes(batch.arrays.version), bool(batch.fresh.all())) for batch in (batcher.next() for _ in range(count))
        ]

    first = versions(2)
    assert [fresh for _, fresh in first] == [True, True]
    again = versions(2)  # idle: the same unroll once more
    assert [version for version, _ in again] == [version for version, _ in first]
    assert not any(fresh for _, fresh in again)
    source.send()
    assert len(source.sent) == 2
    new = versions(2)  # a new unroll is there: no further pass through the old one
    assert all(fresh for _, fresh in new)
    assert {version for version, _ in new}.isdisjoint(version for version, _ in first)
    rest = versions(2 * MOST_PASSES - 2)
    assert not any(fresh for _, fresh in rest)
    assert versions(1)[0][1], "after so many passes it waits for something new"
    assert len(source.sent) == 3
