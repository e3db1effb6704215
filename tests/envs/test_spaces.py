import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, OneOf, Sequence, Text, Tuple
from gymnasium.vector.utils import concatenate, create_empty_array
from scripted import ACTIONS, OBSERVATIONS

from pronk.config import NetworkConfig
from pronk.envs.spaces import action_decoder, check_action_mask, observation_encoder
from pronk.envs.words import word_numbers
from pronk.networks import make_network
from pronk.types import ActionSpec, ArraySpec, EnvSpec, UserError, leaves, map_tree


def batch_of(space: gym.Space, count: int) -> tuple[list, object]:
    """Samples, and the same as a vector environment gives them."""
    space.seed(3)
    samples = [space.sample() for _ in range(count)]
    return samples, concatenate(space, samples, create_empty_array(space, count))


def flat_values(space: gym.Space, sample: object) -> list[np.ndarray]:
    """One sample's leaves in the space's order, labels counted from 0."""
    if isinstance(space, Dict):
        return [value for key, part in space.spaces.items() for value in flat_values(part, sample[key])]
    if isinstance(space, Tuple):
        return [value for index, part in enumerate(space) for value in flat_values(part, sample[index])]
    if isinstance(space, Text):
        return [word_numbers(sample, space.max_length)]
    return [np.asarray(sample) - getattr(space, "start", 0) if hasattr(space, "start") else np.asarray(sample)]


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_every_element_of_an_observation_arrives_as_the_spec_says(name):
    space = OBSERVATIONS[name]
    samples, batched = batch_of(space, 4)
    spec, encode = observation_encoder(space)
    encoded = leaves(encode(batched))
    assert [path for path, _ in encoded] == [path for path, _ in leaves(spec)]
    for index, sample in enumerate(samples):
        expected = flat_values(space, sample)
        for (path, array), (_, leaf), value in zip(encoded, leaves(spec), expected, strict=True):
            assert (array.dtype, array.shape[1:]) == (leaf.dtype, leaf.shape), path
            np.testing.assert_array_equal(array[index], value.astype(leaf.dtype))
            if leaf.categories:
                assert np.all((array[index].reshape(-1) >= 0) & (array[index].reshape(-1) < leaf.categories))


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_a_network_can_see_every_observation(name):
    spec, encode = observation_encoder(OBSERVATIONS[name])
    _, batched = batch_of(OBSERVATIONS[name], 6)
    network = make_network(EnvSpec(spec, ActionSpec((), (3,))), NetworkConfig())

    seen = map_tree(lambda array: torch.from_numpy(array).unflatten(0, (2, 3)), encode(batched))
    output = network(seen, torch.zeros(2, 3, dtype=torch.bool), {})
    assert output.policy.shape == (2, 3, 3)
    assert output.policy.isfinite().all()


def test_specs_of_observations():
    def spec(name):
        return observation_encoder(OBSERVATIONS[name])[0]

    assert spec("float64") == ArraySpec((2, 3), "float32")
    assert spec("bytes") == ArraySpec((4, 4, 2), "uint8")
    assert spec("int32") == ArraySpec((2,), "int32")
    assert spec("discrete_from_7") == ArraySpec((), "int64", (5,))
    assert spec("multi_discrete_grid") == ArraySpec((2, 2), "int64", (2, 3, 4, 5))
    assert spec("multi_binary_grid") == ArraySpec((2, 3), "int8")
    assert {path for path, _ in leaves(spec("nested"))} == {"a", "b/a/0", "b/a/1/x", "b/z"}


@pytest.mark.parametrize("name", ["discrete", "discrete_from_3", "multi_discrete"])
def test_choices_count_from_0_for_the_agent_and_cover_the_space(name):
    space = ACTIONS[name]
    spec, decode = action_decoder(space)
    labels = np.stack(np.meshgrid(*map(np.arange, spec.choices)), -1).reshape(-1, len(spec.choices))
    played = decode(labels if spec.shape else labels[:, 0])
    assert all(action in space for action in played)
    assert len(np.unique(played.reshape(len(labels), -1), axis=0)) == np.prod(spec.choices)
    np.testing.assert_array_equal(played[0], space.start)


@pytest.mark.parametrize("name", ["box", "box_grid", "unbounded", "half_bounded"])
def test_whatever_is_sampled_becomes_an_action_of_the_box(name):
    space = ACTIONS[name]
    spec, decode = action_decoder(space)
    assert spec == ActionSpec(space.shape)
    wild = np.random.default_rng(1).normal(scale=3, size=(500, *space.shape)).astype(np.float32)
    played = decode(wild)
    assert played.dtype == space.dtype
    assert all(action in space for action in played)


def test_a_bounded_side_is_scaled_and_clipped():
    _, decode = action_decoder(ACTIONS["box"])
    agent = np.array([[-1, -1], [0, 0], [0.5, 0.2], [1, 1], [7, -7]], np.float32)
    np.testing.assert_allclose(decode(agent), [[-2, 0], [0, 5], [1, 6], [2, 10], [2, 0]], rtol=1e-6)


def test_without_a_bound_on_one_side_actions_lie_next_to_the_other():
    agent = np.array([[-3, -3, -3], [0.5, 0.5, 0.5], [9, 9, 9]], np.float32)
    np.testing.assert_array_equal(action_decoder(ACTIONS["unbounded"])[1](agent), agent)
    half_bounded = action_decoder(ACTIONS["half_bounded"])[1](agent)
    np.testing.assert_array_equal(half_bounded, [[0, -3, -1], [1.5, 0.5, 0.5], [10, 1, 1]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bounds_as_wide_as_the_type_give_finite_actions(dtype):
    most = np.finfo(dtype).max
    space = Box(-most, most, (3,), dtype)
    played = action_decoder(space)[1](np.array([[-1.0, 0.0, 1.0]], np.float32))
    assert np.isfinite(played).all()
    assert played[0] in space
    assert played[0, 1] == 0


@pytest.mark.parametrize(
    "space",
    [
        Graph(Box(0, 1, (2,)), None),
        Sequence(Discrete(2)),
        OneOf((Discrete(2), Discrete(3))),
        Dict(fine=Discrete(2), story=Sequence(Discrete(2))),
        Tuple((Discrete(2), Dict(story=Sequence(Discrete(2))))),
    ],
    ids=lambda space: type(space).__name__,
)
def test_an_unsupported_observation_is_named(space):
    with pytest.raises(UserError) as error:
        observation_encoder(space)
    bare = next((text for text in ("Graph", "Sequence", "OneOf") if text in str(space)), None)
    assert bare is not None
    assert f"{bare} (" in str(error.value)
    if "story" in str(space):
        assert ".story" in str(error.value)


@pytest.mark.parametrize(
    "space",
    [
        Dict(a=Discrete(2)),
        Tuple((Discrete(2),)),
        Text(5),
        MultiBinary((2, 2)),
        Box(0, 5, (2,), np.int32),
        MultiDiscrete([[2, 2], [3, 3]]),
    ],
    ids=lambda space: type(space).__name__,
)
def test_an_unsupported_action_is_named(space):
    with pytest.raises(UserError) as error:
        action_decoder(space)
    assert f"action: {type(space).__name__} ({space})" in str(error.value)


@pytest.mark.parametrize(("choices", "shape"), [((4,), ()), ((3, 2, 4), (3,))])
def test_a_mask_has_a_flag_for_each_option(choices, shape):
    action = ActionSpec(shape, choices)
    check_action_mask({"action_mask": ArraySpec((sum(choices),), "int8")}, action)
    check_action_mask(ArraySpec((1,), "float32"), action)
    for wrong in [(sum(choices) + 1,), (1, sum(choices)), ()]:
        with pytest.raises(UserError, match="action_mask has shape"):
            check_action_mask({"action_mask": ArraySpec(wrong, "int8")}, action)


def test_real_numbers_cannot_be_masked():
    with pytest.raises(UserError, match="action_mask"):
        check_action_mask({"action_mask": ArraySpec((2,), "int8")}, ActionSpec((2,)))


@pytest.mark.parametrize("space", [Box(-1, 1, (0,)), Box(-1, 1, (2, 0)), MultiDiscrete([])], ids=str)
def test_an_action_space_without_an_action_is_refused(space):
    with pytest.raises(UserError, match="is empty; the agent needs at least one"):
        action_decoder(space)
