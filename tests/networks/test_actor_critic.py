import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from pronk.config import Config, NetworkConfig
from pronk.envs import make_env
from pronk.envs.last_inputs import LastInputs
from pronk.envs.spaces import action_decoder, observation_encoder
from pronk.networks import make_network
from pronk.networks.distributions import parameter_count
from pronk.networks.heads import policy_head
from pronk.networks.torsos import Flat
from pronk.types import ActionSpec, ArraySpec, EnvSpec, UserError, leaves, map_tree

T, B = 4, 3

OBSERVATIONS = {
    "number": spaces.Box(-1, 1, (), np.float32),
    "vector": spaces.Box(-1, 1, (5,), np.float32),
    "double": spaces.Box(-1, 1, (5,), np.float64),
    "grid": spaces.Box(0, 1, (3, 4), np.float32),
    "image": spaces.Box(0, 255, (4, 4, 3), np.uint8),
    "bytes": spaces.Box(0, 255, (6,), np.uint8),
    "integers": spaces.Box(-5, 5, (2, 2), np.int32),
    "integer": spaces.Box(0, 9, (), np.int64),
    "label": spaces.Discrete(4, start=2),
    "labels": spaces.MultiDiscrete([2, 3, 4]),
    "grid of labels": spaces.MultiDiscrete([[2, 3], [4, 5]]),
    "bits": spaces.MultiBinary(4),
    "dict": spaces.Dict(picture=spaces.Box(0, 255, (2, 2), np.uint8), label=spaces.Discrete(3)),
    "nested": spaces.Dict(a=spaces.Dict(b=spaces.Box(-1, 1, (2,)), c=spaces.Discrete(2)), d=spaces.Box(0, 1, ())),
    "tuple": spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (2,)))),
}
ACTIONS = {
    "choice": spaces.Discrete(3, start=-1),
    "choices": spaces.MultiDiscrete([3, 2]),
    "number": spaces.Box(-2, 2, ()),
    "numbers": spaces.Box(-2, 2, (2, 2)),
}
CORES = {
    "none": {"separate_value": False},
    "lstm": {"core": "lstm", "core_size": 6},
    "separate": {"separate_value": True},
}
CHOICE = ActionSpec((), (3,))


def spec_of(observation, action="choice"):
    return EnvSpec(observation_encoder(OBSERVATIONS[observation])[0], action_decoder(ACTIONS[action])[0])


def network_of(spec, seed=0, **config):
    torch.manual_seed(seed)
    return make_network(spec, NetworkConfig(hidden=[8, 7], **config))


def observations_of(name, count=T * B, seed=0):
    """Tensors [T, B, ...] of observations drawn from a space, through Pronk's own encoder."""
    space = OBSERVATIONS[name]
    space.seed(seed)
    batched = gym.vector.utils.create_empty_array(space, count)
    drawn = gym.vector.utils.concatenate(space, [space.sample() for _ in range(count)], batched)
    encode = observation_encoder(space)[1]
    return map_tree(lambda array: torch.from_numpy(array).unflatten(0, (-1, B)), encode(drawn))


def random_inputs(network, seed=0):
    """first and state for T x B observations."""
    generator = torch.Generator().manual_seed(seed)
    state = map_tree(lambda zeros: torch.randn(zeros.shape, generator=generator), network.initial_state(B))
    return torch.rand(T, B, generator=generator) < 0.3, state


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("name", OBSERVATIONS)
def test_every_kind_of_observation_reaches_policy_and_value(name, core):
    network = network_of(spec_of(name), **CORES[core])
    observation, (first, state) = observations_of(name), random_inputs(network)
    output = network(observation, first, state)
    assert output.policy.shape == (T, B, 3)
    assert output.value.shape == (T, B)
    assert output.policy.dtype == output.value.dtype == torch.float32
    (output.policy.square().sum() + output.value.square().sum()).backward()
    assert all(weight.grad.any() for weight in network.parameters() if weight.dim() > 1)
    other = network(observations_of(name, seed=1), first, state)
    assert not torch.allclose(output.value, other.value)
    assert not torch.equal(output.policy, other.policy)


@pytest.mark.parametrize("name", ACTIONS)
def test_every_kind_of_action_can_be_sampled_and_weighed(name):
    spec = spec_of("vector", name)
    network, observation = network_of(spec), observations_of("vector")
    output = network(observation, *random_inputs(network))
    assert output.policy.shape == (T, B, parameter_count(spec.action))
    distribution = network.distribution(output.policy, observation)
    action = distribution.sample()
    assert action.shape == (T, B, *spec.action.shape)
    distribution.log_prob(action.detach()).sum().backward()
    policy_weights = [weight for path, weight in network.named_parameters() if "_value" not in path]
    assert all(weight.grad is not None and weight.grad.any() for weight in policy_weights)


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("action", ACTIONS)
def test_policy_is_forward_without_the_value(action, core):
    network, observation = network_of(spec_of("dict", action), **CORES[core]), observations_of("dict")
    inputs = random_inputs(network)
    output = network(observation, *inputs)
    policy, state = network.policy(observation, *inputs)
    assert torch.equal(policy, output.policy)
    assert dict(leaves(state)).keys() == dict(leaves(output.state)).keys()
    for (_, ours), (_, theirs) in zip(leaves(state), leaves(output.state), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("core", CORES)
def test_t_times_one_step_is_one_times_t_steps(core):
    network, observation = network_of(spec_of("vector"), **CORES[core]), observations_of("vector")
    first, state = random_inputs(network)
    assert first[1:].any(), "an episode opens inside"
    whole = network(observation, first, state)
    for t in range(T):
        step = network(observation[t : t + 1], first[t : t + 1], state)
        torch.testing.assert_close(step.policy[0], whole.policy[t])
        torch.testing.assert_close(step.value[0], whole.value[t])
        state = step.state
    for (_, ours), (_, theirs) in zip(leaves(state), leaves(whole.state), strict=True):
        torch.testing.assert_close(ours, theirs)


def lstm_with(first_at):
    network = network_of(spec_of("vector"), **CORES["lstm"])
    first = torch.zeros(T, B, dtype=torch.bool)
    if first_at is not None:
        first[first_at] = True
    return network, first


def test_lstm_forgets_all_that_was_before_first():
    network, first = lstm_with(2)
    before, after = observations_of("vector"), observations_of("vector", seed=1)
    after[2:] = before[2:]
    one, other = (
        network(observation, first, random_inputs(network, seed)[1]) for observation, seed in [(before, 0), (after, 1)]
    )
    assert torch.equal(one.value[2:], other.value[2:])
    assert torch.equal(one.policy[2:], other.policy[2:])
    assert torch.equal(one.state["cell"], other.state["cell"])
    assert not torch.equal(one.value[1], other.value[1])


def test_lstm_resets_only_the_environment_whose_episode_opens():
    network, first = lstm_with(None)
    first[2, 1] = True
    observation, state = observations_of("vector"), random_inputs(network)[1]
    with_reset, without = network(observation, first, state), network(observation, torch.zeros_like(first), state)
    differs = (with_reset.value != without.value).any(0)
    assert differs.tolist() == [False, True, False]


def test_lstm_opens_an_episode_with_a_zero_state():
    network, first = lstm_with(0)
    observation = observations_of("vector")
    opened = network(observation, first, random_inputs(network)[1])
    from_zero = network(observation, torch.zeros_like(first), network.initial_state(B))
    assert torch.equal(opened.value, from_zero.value)


def test_lstm_remembers_and_learns_through_time():
    network, first = lstm_with(None)
    observation = observations_of("vector").requires_grad_()
    network(observation, first, network.initial_state(B)).value[-1].sum().backward()
    assert observation.grad[0].any()
    observation.grad = None
    first[1] = True
    network(observation, first, network.initial_state(B)).value[-1].sum().backward()
    assert not observation.grad[0].any()
    assert observation.grad[1].any()


def test_state_spec_describes_the_state():
    network, first = lstm_with(None)
    output = network(observations_of("vector"), first, network.initial_state(B))
    for (path, leaf), (other_path, tensor) in zip(leaves(network.state_spec), leaves(output.state), strict=True):
        assert path == other_path
        assert tensor.shape == (B, *leaf.shape)
        assert str(tensor.dtype) == f"torch.{leaf.dtype}"


def test_separate_value_shares_no_weight_with_the_policy():
    network = network_of(spec_of("vector"), separate_value=True)
    output = network(observations_of("vector"), *random_inputs(network))
    output.value.sum().backward(retain_graph=True)
    of_value = {name for name, weight in network.named_parameters() if weight.grad is not None}
    network.zero_grad()
    output.policy.sum().backward()
    of_policy = {name for name, weight in network.named_parameters() if weight.grad is not None}
    assert of_value | of_policy == dict(network.named_parameters()).keys()
    assert not of_value & of_policy


@pytest.mark.parametrize(
    ("name", "config", "separate"),
    [
        ("vector", {}, True),
        ("labels", {}, True),
        ("vector", {"torso": "mlp"}, True),
        ("vector", {"core": "lstm"}, False),
        ("image", {}, False),
        ("image", {"torso": "small"}, False),
        ("image", {"torso": "mlp"}, True),
    ],
)
def test_a_value_torso_is_separate_where_it_is_small(name, config, separate):
    assert (network_of(spec_of(name), **config)._value_torso is not None) == separate


def test_shared_torso_learns_from_both():
    network = network_of(spec_of("vector"), separate_value=False)
    output = network(observations_of("vector"), *random_inputs(network))
    shared = next(iter(network.parameters()))
    for part in (output.value.sum(), output.policy.square().sum()):
        shared.grad = None
        part.backward(retain_graph=True)
        assert shared.grad.any()


def test_the_first_policy_is_nearly_uniform():
    network = network_of(spec_of("image"))
    observation = observations_of("image")
    entropy = network.distribution(network(observation, *random_inputs(network)).policy, observation).entropy()
    torch.testing.assert_close(entropy, torch.full((T, B), np.log(3), dtype=torch.float32), atol=1e-3, rtol=0)


@pytest.mark.parametrize("size", [1, 2, 16])
def test_the_more_real_numbers_the_less_each_varies_at_first(size):
    head = policy_head(8, ActionSpec((size,)))
    _, log_std = head(torch.randn(3, 8)).chunk(2, -1)
    torch.testing.assert_close(
        log_std.exp(), torch.full((3, size), {1: 1.0, 2: 0.8409, 16: 0.5}[size]), atol=1e-4, rtol=0
    )


def test_no_hidden_layer_is_a_linear_network():
    network = make_network(spec_of("vector"), NetworkConfig(hidden=[]))
    x, y = observations_of("vector"), observations_of("vector", seed=1)
    first = torch.zeros(T, B, dtype=torch.bool)
    middle = network((x + y) / 2, first, {}).value
    torch.testing.assert_close(middle, (network(x, first, {}).value + network(y, first, {}).value) / 2)


def test_labels_become_one_hot_bytes_are_scaled_and_numbers_stay():
    specs = {
        "label": ArraySpec((), "int64", (3,)),
        "deep": {"labels": ArraySpec((2,), "int64", (2, 3)), "bytes": ArraySpec((2, 1), "uint8")},
        "integers": ArraySpec((2,), "int32"),
        "number": ArraySpec((), "float32"),
    }
    observation = {
        "label": torch.tensor([2]),
        "deep": {"labels": torch.tensor([[1, 0]]), "bytes": torch.tensor([[[255], [51]]], dtype=torch.uint8)},
        "integers": torch.tensor([[-7, 300]], dtype=torch.int32),
        "number": torch.tensor([0.5]),
    }
    flat = Flat(specs)
    assert flat.size == 13
    expected = [0, 0, 1, 0, 1, 1, 0, 0, 1.0, 0.2, -7, 300, 0.5]
    assert flat(observation).tolist() == [pytest.approx(expected)]


def masked_network(action):
    size = sum(action.choices)
    spec = EnvSpec({"board": ArraySpec((5,), "float32"), "action_mask": ArraySpec((size,), "int8")}, action)
    return network_of(spec)


@pytest.mark.parametrize("action", [CHOICE, ActionSpec((2,), (3, 2))])
def test_a_mask_rules_out_choices_and_is_not_itself_seen(action):
    network = masked_network(action)
    size = sum(action.choices)
    mask = torch.zeros(T, B, size, dtype=torch.int8)
    mask[..., [1, size - 1]] = 1
    observation = {"board": torch.randn(T, B, 5), "action_mask": mask}
    first = torch.zeros(T, B, dtype=torch.bool)
    output = network(observation, first, {})
    unmasked = network(observation | {"action_mask": torch.ones_like(mask)}, first, {})
    assert torch.equal(output.policy, unmasked.policy)
    assert torch.equal(output.value, unmasked.value)
    allowed = {0: [1, 2], 1: [1]} if action.shape == () else {0: [1], 1: [1]}
    samples = torch.cat([network.distribution(output.policy, observation).sample() for _ in range(20)])
    for choice in range(len(action.choices)):
        column = samples if action.shape == () else samples[..., choice]
        assert set(column.flatten().tolist()) == set(allowed[choice])


def test_last_action_and_reward_reach_the_network_through_the_spec():
    config = Config.model_validate(
        {
            "env": {"id": "catch", "kwargs": {"rows": 3}},
            "network": {"last_action": True, "last_reward": True, "hidden": [8]},
        }
    )
    env = make_env(config, 2)
    network = make_network(env.spec, config.network)
    flat = Flat(env.spec.observation)
    assert flat.size == 3 * 5 + (3 + 1) + 1  # board, one-hot last action with "none yet", last reward

    def last_inputs(step):
        tensors = map_tree(torch.from_numpy, step.observation)
        seen = map_tree(lambda array: array.unsqueeze(0), tensors)
        assert network(seen, torch.from_numpy(step.first).unsqueeze(0), {}).value.shape == (1, 2)
        return flat(tensors)[:, 15:].tolist()

    opened = [1.0, 0.0, 0.0, 0.0, 0.0]
    assert last_inputs(env.reset([1, 2])) == [opened, opened]
    assert last_inputs(env.step(np.array([0, 2]))) == [[0, 1, 0, 0, 0], [0, 0, 0, 1, 0]]
    ended = env.step(np.array([1, 1]))
    assert ended.first.all()
    assert set(np.abs(ended.reward)) == {1.0}
    assert last_inputs(ended) == [opened, opened]
    env.close()


def test_last_reward_is_clipped_and_a_continuous_last_action_stays_as_it_is():
    env = make_env(Config.model_validate({"env": {"id": "Pendulum-v1"}}), 2)
    extended = LastInputs(env, action=True, reward=True)
    extended.reset([1, 2])
    step = extended.step(np.array([[0.25], [-1.5]], np.float32))
    assert (step.reward < -1).any()
    assert step.observation["last_reward"].tolist() == np.clip(step.reward, -1, 1).astype(np.float32).tolist()
    assert step.observation["last_action"].tolist() == [[0.25], [-1.5]]
    assert {path: (leaf.shape, leaf.dtype) for path, leaf in leaves(extended.spec.observation)} == {
        path: (array.shape[1:], array.dtype) for path, array in leaves(step.observation)
    }
    env.close()


IMAGE_TORSOS = {  # (channels, kernel, stride) of each convolution, and the width of the layer after them
    "shallow": ([(16, 8, 4), (32, 4, 2)], 256),
    "nature": ([(32, 8, 4), (64, 4, 2), (64, 3, 1)], 512),
    "opt_cnn": ([(16, 8, 4), (32, 4, 2), (256, 11, 1)], 256),
    "compact": ([(16, 4, 2), (32, 4, 2)], 256),
    "small": ([(16, 3, 1)], 128),
    "deep": ([(16, 3, 1)] * 5 + [(32, 3, 1)] * 10, 256),
}


def side_for(torso):
    return {"small": 10, "compact": 42}.get(torso, 84)


def image_network(torso, **observation):
    specs = {name: ArraySpec(*spec) for name, spec in observation.items()}
    return network_of(EnvSpec(specs["image"] if len(specs) == 1 else specs, CHOICE), torso=torso)


def look(network, observation):
    """Policy and value of one time step."""
    folded = map_tree(lambda array: array.unsqueeze(0), observation)
    batch = dict(leaves(observation)).popitem()[1].shape[0]
    output = network(folded, torch.zeros(1, batch, dtype=torch.bool), {})
    return torch.cat([output.policy[0], output.value[0].unsqueeze(-1)], -1)


def pictures(*shape, seed=0):
    return torch.randint(256, (2, *shape), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


@pytest.mark.parametrize("torso", IMAGE_TORSOS)
def test_image_torsos_have_the_layers_of_their_papers(torso):
    layers, width = IMAGE_TORSOS[torso]
    side = side_for(torso)
    network = image_network(torso, image=((4, side, side), "uint8"))
    convolutions = [module for module in network.modules() if isinstance(module, torch.nn.Conv2d)]
    assert [(conv.out_channels, conv.kernel_size[0], conv.stride[0]) for conv in convolutions] == layers
    assert convolutions[0].in_channels == 4
    assert network._torso.size == width


@pytest.mark.parametrize("torso", IMAGE_TORSOS)
def test_a_picture_looks_the_same_in_every_encoding(torso):
    side = side_for(torso)
    pixels = pictures(4, side, side)
    first = image_network(torso, image=((4, side, side), "uint8"))
    last = image_network(torso, image=((side, side, 4), "uint8"))
    floats = image_network(torso, image=((4, side, side), "float32"))
    seen = look(first, pixels)
    torch.testing.assert_close(look(last, pixels.permute(0, 2, 3, 1)), seen)
    torch.testing.assert_close(look(floats, pixels.float() / 255), seen)
    assert not torch.allclose(seen[0], seen[1])
    seen.square().sum().backward()
    assert all(weight.grad.any() for weight in first.parameters() if weight.dim() > 1)


def test_other_entries_are_joined_to_the_features_of_the_image():
    spec = {"label": ((), "int64", (3,)), "image": ((8, 8, 2), "uint8"), "speed": ((2,), "float32")}
    network = image_network("small", **spec)
    assert network._torso.size == 128 + 3 + 2
    observation = {"label": torch.tensor([0, 2]), "image": pictures(8, 8, 2), "speed": torch.randn(2, 2)}
    seen = look(network, observation)
    for name, other in [("label", [1, 1]), ("image", pictures(8, 8, 2, seed=1)), ("speed", [[1, 2], [3, 4]])]:
        changed = torch.as_tensor(other, dtype=observation[name].dtype)
        assert not torch.allclose(look(network, observation | {name: changed}), seen)


def test_several_images_are_stacked_each_in_its_own_scale():
    shapes = {"image": ((8, 8, 2), "uint8"), "depth": ((8, 8, 2), "float32")}
    mixed = image_network("small", **shapes)
    floats = image_network("small", image=((8, 8, 2), "float32"), depth=((8, 8, 2), "float32"))
    observation = {"image": pictures(8, 8, 2), "depth": torch.rand(2, 8, 8, 2)}
    as_floats = observation | {"image": observation["image"].float() / 255}
    torch.testing.assert_close(look(mixed, observation), look(floats, as_floats))


@pytest.mark.parametrize(
    ("shape", "channels_in"), [((4, 12, 12), 4), ((21, 16, 3), 3), ((10, 10, 4), 4), ((7, 7, 20), 20), ((9, 8, 8), 9)]
)
def test_channels_are_found_at_either_end(shape, channels_in):
    network = image_network("small", image=(shape, "uint8"))
    assert next(network.parameters()).shape[1] == channels_in


def test_a_stack_of_colour_frames_is_an_image():
    network = image_network("shallow", image=((4, 84, 84, 3), "uint8"))
    assert next(network.parameters()).shape[1] == 12
    assert look(network, pictures(4, 84, 84, 3)).shape == (2, 4)


@pytest.mark.parametrize(("torso", "shape"), [("shallow", (16, 16, 3)), ("opt_cnn", (4, 42, 42)), ("deep", (5,))])
def test_an_observation_that_a_torso_cannot_see_is_a_users_mistake(torso, shape):
    with pytest.raises(UserError, match=f"network.torso={torso}"):
        image_network(torso, image=(shape, "uint8"))
