import dataclasses

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pronk.layout import ALIGNMENT, Layout, UnrollLayout
from pronk.types import ActionSpec, ArraySpec, EnvSpec, Unroll, leaves, map_tree, unroll_specs

DTYPES = ["float32", "float64", "int64", "int32", "int8", "uint8", "bool"]
arrays = st.builds(
    ArraySpec,
    shape=st.lists(st.integers(0, 5), max_size=3).map(tuple),
    dtype=st.sampled_from(DTYPES),
)
trees = st.recursive(
    arrays, lambda parts: st.dictionaries(st.sampled_from("abcd"), parts, min_size=1, max_size=4), max_leaves=6
)
checked = settings(deadline=None, derandomize=True, max_examples=100)


def placed(layout):
    """(offset, length) in bytes of every array."""
    pairs = zip(leaves(layout.offsets), leaves(layout.specs), strict=True)
    return [(offset, spec.size * np.dtype(spec.dtype).itemsize) for (_, offset), (_, spec) in pairs]


def random_values(spec, generator):
    return generator.integers(0, 2 if spec.dtype == "bool" else 100, spec.shape).astype(spec.dtype)


@checked
@given(trees, st.integers(0, 1000))
def test_what_is_written_through_one_view_is_read_through_another(specs, seed):
    generator = np.random.default_rng(seed)
    layout, values = Layout(specs), map_tree(lambda spec: random_values(spec, generator), specs)
    block = bytearray(layout.nbytes)
    map_tree(np.copyto, layout.view(block), values)
    received = Layout(specs).view(bytes(block))
    assert [path for path, _ in leaves(received)] == [path for path, _ in leaves(specs)]
    for (_, array), (_, value), (_, spec) in zip(leaves(received), leaves(values), leaves(specs), strict=True):
        assert (array.shape, array.dtype) == (spec.shape, spec.dtype)
        np.testing.assert_array_equal(array, value)


@checked
@given(trees)
def test_arrays_are_aligned_inside_the_block_and_share_no_cache_line(specs):
    layout, end = Layout(specs), 0
    for offset, length in placed(layout):
        assert offset % ALIGNMENT == 0
        assert offset >= end
        end = -(-(offset + length) // ALIGNMENT) * ALIGNMENT
    assert layout.nbytes == end


def changed(specs, path, change):
    """The tree with one array changed."""
    if not path:
        return change(specs)
    return {key: changed(part, path[1:], change) if key == path[0] else part for key, part in specs.items()}


def differing(spec):
    other = DTYPES[DTYPES.index(spec.dtype) - 1]
    yield dataclasses.replace(spec, dtype=other)
    yield dataclasses.replace(spec, shape=(*spec.shape, 1))
    yield dataclasses.replace(spec, shape=(3, *spec.shape))
    yield {"new": spec}
    for axis, length in enumerate(spec.shape):
        yield dataclasses.replace(spec, shape=(*spec.shape[:axis], length + 1, *spec.shape[axis + 1 :]))


@checked
@given(trees)
def test_the_digest_tells_any_change_of_any_array(specs):
    digest = Layout(specs).digest
    assert Layout(map_tree(dataclasses.replace, specs)).digest == digest
    for path, spec in leaves(specs):
        for other in differing(spec):
            parts = path.split("/") if path else []
            assert Layout(changed(specs, parts, lambda _, other=other: other)).digest != digest


@checked
@given(trees, trees)
def test_digests_are_the_same_only_for_the_same_tree_in_the_same_order(one, other):
    same = leaves(one) == leaves(other)
    assert (Layout(one).digest == Layout(other).digest) == same


def test_order_and_names_are_part_of_the_digest():
    a, b = ArraySpec((2,), "float32"), ArraySpec((2,), "float32")
    digests = {Layout(specs).digest for specs in [{"a": a, "b": b}, {"b": b, "a": a}, {"a": a, "c": b}, {"a": a}]}
    assert len(digests) == 4


def test_writing_to_a_view_writes_to_the_buffer():
    layout = Layout({"a": ArraySpec((2,), "int32"), "b": ArraySpec((), "uint8")})
    block = np.zeros(layout.nbytes, np.uint8)
    views = layout.view(block)
    views["b"][...] = 7
    assert block[layout.offsets["b"]] == 7
    block[:8] = np.array([5, 6], np.int32).view(np.uint8)
    assert views["a"].tolist() == [5, 6]


def test_an_unroll_round_trips_with_every_field_where_its_specs_say():
    spec = EnvSpec({"board": ArraySpec((3, 2), "uint8"), "goal": ArraySpec((), "float32")}, ActionSpec((2,), (3, 4)))
    specs = unroll_specs(spec, {"hidden": ArraySpec((5,), "float32")}, length=4, envs=3)
    layout, generator = UnrollLayout(specs), np.random.default_rng(0)
    unroll = layout.allocate()
    assert isinstance(unroll, Unroll)
    shapes = {path: array.shape for path, array in leaves(unroll._asdict())}
    assert shapes == {
        "observation/board": (5, 3, 3, 2),
        "observation/goal": (5, 3),
        "first": (5, 3),
        "action": (4, 3, 2),
        **dict.fromkeys(["log_prob", "reward", "discount", "valid", "episode_return", "episode_length"], (4, 3)),
        "state/hidden": (3, 5),
        "version": (3,),
        "task": (3,),
        "environment": (3,),
    }
    values = map_tree(lambda each: random_values(each, generator), specs._asdict())
    block = bytearray(layout.nbytes)
    map_tree(np.copyto, layout.view(block)._asdict(), values)
    for (_, array), (_, value) in zip(leaves(UnrollLayout(specs).view(block)._asdict()), leaves(values), strict=True):
        np.testing.assert_array_equal(array, value)
