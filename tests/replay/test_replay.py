"""The replay buffer: against a model in plain Python, through the batcher, on disk, and its memory."""

from __future__ import annotations

from collections import Counter, deque
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_batcher import CPU, LENGTH, OBSERVATION, STATE, Source, assert_columns_are, column

from pronk.batcher import Batcher
from pronk.config import ResolvedConfig, load_config, resolve
from pronk.envs import make_env
from pronk.layout import UnrollLayout, with_columns
from pronk.replay import Replay, describe_replay, replay_nbytes, replayed_columns
from pronk.replay.frame_stacks import FramePool, new_frames, pool_specs
from pronk.types import ActionSpec, ArraySpec, EnvSpec, Unroll, leaves, map_unroll, unroll_specs

DEPTH = 4  # frames of a stack: the default of env.atari.stack
STACKED = {"screen": ArraySpec((DEPTH, 2, 3), "uint8"), "last_reward": ArraySpec((), "float32")}
SEED = np.random.SeedSequence(3)
ACTION = ActionSpec((2,), (3, 4))


def configured(size: int, *changes: str) -> ResolvedConfig:
    return resolve(load_config("catch", ["learner.batch_size=16", f"replay.size={size}", *changes]))


def specs_of(observation: dict, envs: int = 1, length: int = LENGTH) -> Unroll:
    return unroll_specs(EnvSpec(observation, ACTION), STATE, length, envs)


def random_unroll(specs: Unroll, random: np.random.Generator, number: int) -> Unroll:
    """Random bytes; its columns are told apart by their versions."""
    unroll = UnrollLayout(specs).allocate()
    for _, array in leaves(unroll._asdict()):
        top = 2 if array.dtype == bool else 256
        array.view(np.uint8)[...] = random.integers(top, size=array.view(np.uint8).shape)
    unroll.version[:] = number + np.arange(unroll.version.size)
    return unroll


def slide(unroll: Unroll, random: np.random.Generator, resets: float) -> None:
    """Make each row's stack continue the one before it, but for resets."""
    screen = unroll.observation["screen"]
    for t in range(1, len(screen)):
        for env in range(screen.shape[1]):
            if random.random() >= resets:
                screen[t, env, :-1] = screen[t - 1, env, 1:]


def record(replay: Replay, batch: Unroll, error: float = 1.0) -> None:
    count = batch.version.size
    rows = batch.first.shape[0]
    replay.record(batch, np.ones(count, bool), None, np.zeros((rows, count)), np.full(count, error))


def drawn_from(replay: Replay, specs: Unroll, count: int) -> tuple[Unroll, np.ndarray]:
    target = UnrollLayout(with_columns(specs, count)).allocate()
    slots = replay.draw(target)
    return target, slots


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(1, 7),
    widths=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    resets=st.sampled_from([0.0, 0.3, 1.0]),
    kind=st.sampled_from([OBSERVATION, STACKED]),
)
def test_it_holds_the_newest_columns_bit_for_bit(size, widths, resets, kind):
    random, specs, number = np.random.default_rng(1), specs_of(kind), 0
    replay = Replay(specs, configured(size), SEED)
    model: deque[int] = deque(maxlen=size)
    known = {}
    for width in widths:
        batch = random_unroll(with_columns(specs, width), random, number)
        if kind is STACKED:
            slide(batch, random, resets)
        record(replay, batch)
        for index in range(width):
            model.append(number + index)
            known[number + index] = column(batch, index)
        number += width
        target, _ = drawn_from(replay, specs, 200)
        there = sorted(set(target.version.tolist()))
        assert there == list(model)[-len(replay) :], "the newest, without a gap"
        if kind is OBSERVATION or resets == 0.0:
            assert len(replay) == len(model)
        for index, version in enumerate(target.version.tolist()):
            assert column(target, index) == known[version]


def test_priorities_are_those_of_the_last_use_and_decide_the_shares():
    specs, random = specs_of(OBSERVATION), np.random.default_rng(1)
    replay = Replay(specs, configured(4, "replay.sampling=prioritised"), SEED)
    model: dict[int, float] = {}
    for number, error in enumerate([5.0, 1.0, 2.0, 0.0, 3.0]):  # the first one is overwritten by the last
        record(replay, random_unroll(specs, random, number), error)
        model[number] = error
    del model[0]
    for _ in range(3):
        target, slots = drawn_from(replay, specs, 20_000)
        found = Counter(target.version.tolist())
        for number, error in model.items():
            assert found[number] / 20_000 == pytest.approx(error / sum(model.values()), abs=0.02)
        # All that were drawn are learnt from again, and have other errors now.
        versions = target.version
        errors = np.array([model[version] + version for version in versions.tolist()])
        nothing_fresh = np.zeros(versions.size, bool)
        replay.record(target, nothing_fresh, slots, np.zeros((LENGTH + 1, versions.size)), errors)
        model |= {version: model[version] + version for version in versions.tolist()}
    assert len(replay) == 4


@pytest.mark.parametrize("kind", [OBSERVATION, STACKED], ids=["whole", "stacked"])
@pytest.mark.parametrize("changes", [(), ("replay.sampling=prioritised", "replay.clone_value_cost=0.1")])
@pytest.mark.parametrize("size", [1, 1000])
def test_its_memory_is_exactly_as_stated(kind, changes, size):
    specs, config = specs_of(kind, envs=5), configured(size, *changes)
    stated = replay_nbytes(specs, config)
    replay = Replay(specs, config, SEED)
    assert sum(array.nbytes for array in replay.arrays.values()) == stated
    owned = [value for value in vars(replay).values() if isinstance(value, np.ndarray)]
    assert all(any(one is array for array in replay.arrays.values()) for one in owned)
    assert replay_nbytes(specs, configured(0)) == 0


def test_atari_frames_are_stored_once():
    whole = ArraySpec((4, 84, 84), "uint8")
    specs = unroll_specs(EnvSpec(whole, ActionSpec((), (6,))), {}, 20, 16)
    config = configured(10_000, "actors.unroll_length=20")
    one = 21 * whole.size * 10_000
    assert replay_nbytes(specs, config) < 0.31 * one
    text = describe_replay(config, 10_000, replay_nbytes(specs, config))
    assert text == ("replay: 16 columns on top of 16 fresh ones, from the last 10,000 of 20 steps (1.7 GiB of memory)")


@pytest.mark.parametrize(("fraction", "batch", "replayed"), [(0.5, 16, 16), (0.75, 16, 48), (0.2, 16, 4), (0.01, 4, 1)])
def test_fraction_is_the_share_of_the_batch(fraction, batch, replayed):
    config = configured(10, f"replay.fraction={fraction}", f"learner.batch_size={batch}")
    assert replayed_columns(config) == replayed
    assert replayed_columns(configured(0, f"replay.fraction={fraction}")) == 0


@pytest.mark.parametrize("resets", [0.0, 0.5, 1.0])
def test_packing_is_exact_on_random_stacks(resets):
    random = np.random.default_rng(1)
    frames, starts = pool_specs(ArraySpec((6, 4, 3, 2), "uint8"), 10)
    pool = FramePool(np.zeros(frames.shape, "uint8"), np.zeros(starts.shape, "int64"), 4)
    for _ in range(30):
        stack = random.integers(2, size=(6, 4, 3, 2)).astype("uint8")  # few values: frames often coincide by chance
        for t in range(1, 6):
            if random.random() >= resets:
                stack[t, :-1] = stack[t - 1, 1:]
        before = pool.end
        pool.write(3, stack, new_frames(stack))
        rebuilt = np.zeros((6, 1, 4, 3, 2), "uint8")
        pool.read(np.array([3]), rebuilt)
        np.testing.assert_array_equal(rebuilt[:, 0], stack)
        assert pool.end - before == 9 or resets


@pytest.mark.filterwarnings("ignore::pronk.config.loading.WithoutGpu")
@pytest.mark.parametrize("game", ["pong", "breakout"])
def test_packing_is_exact_on_the_emulator(game):
    changes = [f"env.game={game}", "env.atari.max_frames=300", "env.atari.size=42", "transport=local"]
    config = resolve(load_config("atari", [*changes, "actors.envs=2", "learner.batch_size=2", "replay.size=12"]))
    length, random = 20, np.random.default_rng(1)
    env = make_env(config, 2)
    specs = unroll_specs(env.spec, {}, length, 2)
    replay, sent, games = Replay(specs, config, SEED), {}, 0
    try:
        step = env.reset([1, 2])
        for number in range(6):
            unroll = random_unroll(specs, random, 2 * number)
            for t in range(length + 1):
                unroll.observation[t] = step.observation
                unroll.first[t] = step.first
                if t < length:
                    step = env.step(random.integers(env.spec.action.choices[0], size=2))
            record(replay, unroll)
            games += np.count_nonzero(unroll.first[1:])
            sent |= {2 * number + index: column(unroll, index) for index in range(2)}
    finally:
        env.close()
    assert games
    assert len(replay) == 12, "new games included, all fit"
    target, _ = drawn_from(replay, specs, 100)
    assert set(target.version.tolist()) == set(sent)
    for index, version in enumerate(target.version.tolist()):
        assert column(target, index) == sent[version]


def replaying(source: Source, batch_size: int, passes: int = 1, **changes: float) -> tuple[Batcher, Replay]:
    given = [f"replay.{name}={value}" for name, value in changes.items()]
    config = configured(6, f"learner.batch_size={batch_size}", f"actors.envs={source.specs.version.shape[0]}", *given)
    replay = Replay(source.specs, config, SEED)
    return Batcher(source.port, source.specs, batch_size, CPU, passes, replay), replay


@pytest.mark.parametrize(("envs", "batch_size"), [(2, 6), (6, 2), (4, 4)])
def test_batches_are_fresh_columns_and_then_replayed_ones(envs, batch_size):
    source = Source(envs, STATE)
    batcher, replay = replaying(source, batch_size)
    recorded: list[dict[str, bytes]] = []
    for update in range(4 * max(1, envs // batch_size)):
        batch = batcher.next()
        has_replay = update >= max(1, envs // batch_size)
        assert batch.fresh.tolist() == [True] * batch_size + [False] * batch_size * has_replay
        everyone = [(unroll, index) for unroll in source.sent for index in range(envs)]
        newest = everyone[update * batch_size : (update + 1) * batch_size]
        fresh = map_unroll(np.copy, batch.arrays)
        for index, (unroll, environment) in enumerate(newest):
            assert column(fresh, index) == column(unroll, environment)
        for index in range(batch_size, batch.arrays.version.size):
            assert column(fresh, index) in recorded[-6:]
        if has_replay:
            for (_, tensor), (_, array) in zip(
                leaves(batch.tensors._asdict()), leaves(batch.arrays._asdict()), strict=True
            ):
                assert tensor.numpy().tobytes() == array.tobytes()
        error, value = np.ones(batch.fresh.size), np.zeros((LENGTH + 1, batch.fresh.size))
        replay.record(batch.arrays, batch.fresh, batch.drawn, value, error)
        recorded += [column(fresh, index) for index in range(batch_size)]


def test_every_pass_draws_anew():
    source = Source(4, {})
    batcher, replay = replaying(source, 4, passes=3)
    seen = []
    for _ in range(9):
        batch = batcher.next()
        if batch.drawn is not None:
            seen.append(tuple(batch.drawn))
        replay.record(batch.arrays, batch.fresh, batch.drawn, np.zeros((LENGTH + 1, batch.fresh.size)), np.ones(8))
    assert len(seen) == 6
    assert len(set(seen)) == 6
    assert len(replay) == 6, "a column enters once, whatever the passes"


def test_values_of_the_time_when_a_column_was_fresh_come_along():
    source = Source(4, {})
    batcher, replay = replaying(source, 4, clone_value_cost=0.1)
    first = batcher.next()
    assert first.recorded is None
    value = np.random.default_rng(1).normal(size=(LENGTH + 1, 4)).astype("float32")
    replay.record(first.arrays, first.fresh, None, value, np.ones(4))
    of_version = {int(first.arrays.version[index]): value[:, index] for index in range(4)}
    second = batcher.next()
    assert isinstance(second.recorded, torch.Tensor)
    assert second.recorded.shape == (LENGTH + 1, 4)
    for index in range(4):
        wanted = of_version[int(second.arrays.version[4 + index])]
        np.testing.assert_array_equal(second.recorded[:, index].numpy(), wanted)


CHANGES = ("replay.sampling=prioritised", "replay.clone_value_cost=0.1")


def filled(kind: dict, size: int, columns: int) -> tuple[Replay, Unroll]:
    specs, random = specs_of(kind), np.random.default_rng(1)
    replay = Replay(specs, configured(size, *CHANGES), SEED)
    for number in range(columns):
        unroll = random_unroll(specs, random, number)
        if kind is STACKED:
            slide(unroll, random, 0.1)
        record(replay, unroll, error=number)
    return replay, specs


@pytest.mark.parametrize("kind", [OBSERVATION, STACKED], ids=["whole", "stacked"])
@pytest.mark.parametrize("columns", [0, 3, 8, 30])
def test_what_was_saved_goes_on_bit_for_bit(tmp_path: Path, kind, columns):
    replay, specs = filled(kind, 8, columns)
    replay.save(tmp_path / "replay.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["replay.npz"]
    again = Replay(specs, configured(8, *CHANGES), np.random.SeedSequence(99))
    assert again.load(tmp_path / "replay.npz", version=1000) is None
    assert len(again) == len(replay)
    random = np.random.default_rng(5)
    for number in range(40, 60):  # and both go on alike
        if len(replay):
            (one, slots), (other, same_slots) = (drawn_from(each, specs, 9) for each in (replay, again))
            np.testing.assert_array_equal(slots, same_slots)
            np.testing.assert_array_equal(replay.values(slots), again.values(slots))
            assert_columns_are(one, [(other, index) for index in range(9)])
        new = random_unroll(specs, random, number)
        record(replay, new, error=number)
        record(again, new, error=number)


def test_a_state_without_entries_is_saved_too(tmp_path: Path):
    specs = unroll_specs(EnvSpec(OBSERVATION, ACTION), ArraySpec((3,), "float32"), LENGTH, 1)
    replay, again = (Replay(specs, configured(8, *CHANGES), SEED) for _ in range(2))
    record(replay, random_unroll(specs, np.random.default_rng(1), 7))
    replay.save(tmp_path / "replay.npz")
    assert again.load(tmp_path / "replay.npz", version=1000) is None
    np.testing.assert_array_equal(drawn_from(replay, specs, 1)[0].state, drawn_from(again, specs, 1)[0].state)


def test_fewer_columns_than_asked_for_are_reported():
    specs, random = specs_of(STACKED), np.random.default_rng(1)
    replay = Replay(specs, configured(20), SEED)
    for number in range(60):
        unroll = random_unroll(specs, random, number)
        if number < 30:
            slide(unroll, random, 0.0)
        record(replay, unroll)
        if number < 30:
            assert replay.shortage is None
    assert replay.shortage
    assert f"about {len(replay)} columns instead of 20" in replay.shortage


def test_a_changed_byte_in_a_file_is_noticed(tmp_path: Path):
    replay, specs = filled(STACKED, 8, 12)
    path = tmp_path / "replay.npz"
    replay.save(path)
    content = bytearray(path.read_bytes())
    content[content.index(replay.arrays["observation/screen frames"].tobytes()) + 100] ^= 1
    path.write_bytes(content)
    again = Replay(specs, configured(8, *CHANGES), SEED)
    assert "CRC" in str(again.load(path, 1000))
    assert len(again) == 0


def test_columns_of_later_weights_than_the_checkpoint_are_dropped(tmp_path: Path):
    replay, specs = filled(STACKED, 8, 12)
    replay.save(tmp_path / "replay.npz")
    again = Replay(specs, configured(8, *CHANGES), SEED)
    assert again.load(tmp_path / "replay.npz", version=9) is None
    target, _ = drawn_from(again, specs, 300)
    newest = set(range(12 - len(replay), 10))
    assert set(target.version.tolist()) <= newest
    assert len(again) == len(newest)


def test_a_file_of_no_use_is_refused_and_changes_nothing(tmp_path: Path):
    replay, specs = filled(OBSERVATION, 8, 5)
    replay.save(tmp_path / "replay.npz")
    other = Replay(specs, configured(9, *CHANGES), SEED)
    assert other.load(tmp_path / "replay.npz", 1000) == "it was saved with other settings"
    assert other.load(tmp_path / "none.npz", 1000) == "there is none"
    torn = tmp_path / "torn.npz"
    torn.write_bytes((tmp_path / "replay.npz").read_bytes()[:1000])
    assert other.load(torn, 1000)
    assert len(other) == 0
