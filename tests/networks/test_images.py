"""Image torsos: how many weights they have, against numbers worked out by hand and the paper's own; shapes; recurrence.

What the layers are and that a picture looks the same in every encoding is in `test_actor_critic.py`.
"""

import pytest
import torch

from pronk.config import NetworkConfig
from pronk.envs.last_inputs import with_last_inputs
from pronk.networks import make_network
from pronk.networks.images import Shallow, in_unit_range, planes, standardised
from pronk.types import ActionSpec, ArraySpec, EnvSpec, UserError, leaves

TORSOS = ["shallow", "nature", "deep", "opt_cnn", "compact", "small"]
ATARI = EnvSpec(ArraySpec((4, 84, 84), "uint8"), ActionSpec((), (6,)))
DMLAB = EnvSpec(ArraySpec((72, 96, 3), "uint8"), ActionSpec((), (9,)))


def weights(network: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def conv(inputs: int, outputs: int, kernel: int) -> int:
    return inputs * outputs * kernel**2 + outputs


def linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def lstm(inputs: int, size: int) -> int:
    """Four gates, each with weights on the input and on the state; PyTorch gives both a bias."""
    return 4 * (linear(inputs, size) + linear(size, size))


def section(inputs: int, outputs: int) -> int:
    """Of the deep network: one convolution, then two residual blocks of two."""
    return conv(inputs, outputs, 3) + 4 * conv(outputs, outputs, 3)


BY_HAND = {  # 84x84x4 -> the size of the last picture -> fully connected
    "shallow": conv(4, 16, 8) + conv(16, 32, 4) + linear(32 * 9 * 9, 256),  # 84 -> 20 -> 9
    "nature": conv(4, 32, 8) + conv(32, 64, 4) + conv(64, 64, 3) + linear(64 * 7 * 7, 512),  # 84 -> 20 -> 9 -> 7
    "deep": section(4, 16) + section(16, 32) + section(32, 32) + linear(32 * 11 * 11, 256),  # 84 -> 42 -> 21 -> 11
    "opt_cnn": conv(4, 16, 8) + conv(16, 32, 4) + conv(32, 256, 11) + linear(256, 256),  # 84 -> 21 -> 11 -> 1
    "compact": conv(4, 16, 4) + conv(16, 32, 4) + linear(32 * 19 * 19, 256),  # 84 -> 41 -> 19
    "small": conv(4, 16, 3) + linear(16 * 84 * 84, 128),
}
WRITTEN_OUT = {
    "shallow": 677_943,
    "nature": 1_687_719,
    "deep": 1_091_031,
    "opt_cnn": 1_071_415,
    "compact": 2_968_631,
    "small": 14_452_311,
}


@pytest.mark.parametrize("torso", TORSOS)
def test_weights_on_atari_are_those_counted_by_hand(torso):
    network = make_network(ATARI, NetworkConfig(torso=torso))
    width = {"nature": 512, "small": 128}.get(torso, 256)
    assert weights(network) == BY_HAND[torso] + linear(width, 6) + linear(width, 1) == WRITTEN_OUT[torso]


# The paper's core also reads an instruction (words in 1000 buckets, embedding 20, LSTM 64), which is not built yet: its
# own weights, and those that join its 64 outputs to the core.
INSTRUCTION = 1000 * 20 + lstm(20, 64) + 4 * 64 * 256
# Torso's features, last reward, and last action one-hot with a tenth label for "none yet".
CORE_INPUTS = 256 + 1 + (9 + 1)


@pytest.mark.parametrize(
    ("torso", "by_hand", "written_out", "paper"),
    [
        ("shallow", conv(3, 16, 8) + conv(16, 32, 4) + linear(32 * 7 * 10, 256), 1_125_178, 1.2e6),
        ("deep", section(3, 16) + section(16, 32) + section(32, 32) + linear(32 * 9 * 12, 256), 1_522_762, 1.6e6),
    ],
)
def test_weights_at_the_papers_input_are_the_papers(torso, by_hand, written_out, paper):
    """Figure 3: 1.2 and 1.6 million."""
    spec = with_last_inputs(DMLAB, action=True, reward=True)
    network = make_network(spec, NetworkConfig(torso=torso, core="lstm", core_size=256))
    count = by_hand + lstm(CORE_INPUTS, 256) + linear(256, 9) + linear(256, 1)
    assert weights(network) == count == written_out
    assert round(count + INSTRUCTION, -5) == paper


def observations(spec: EnvSpec, length: int, batch: int, seed: int = 0):
    """Random bytes, labels and numbers [T, B, ...]."""
    generator = torch.Generator().manual_seed(seed)

    def draw(leaf):
        shape = (length, batch, *leaf.shape)
        if leaf.categories:
            return torch.randint(leaf.categories[0], shape, generator=generator)
        if leaf.dtype == "uint8":
            return torch.randint(256, shape, generator=generator, dtype=torch.uint8)
        return torch.randn(shape, generator=generator)

    drawn = {path: draw(leaf) for path, leaf in leaves(spec.observation)}
    return drawn if isinstance(spec.observation, dict) else drawn[""]


@pytest.mark.parametrize("core", ["none", "lstm"])
@pytest.mark.parametrize("torso", TORSOS)
def test_shapes_on_atari(torso, core):
    network = make_network(ATARI, NetworkConfig(torso=torso, core=core))
    first = torch.zeros(2, 3, dtype=torch.bool)
    with torch.no_grad():
        output = network(observations(ATARI, 2, 3), first, network.initial_state(3))
    assert output.policy.shape == (2, 3, 6)
    assert output.value.shape == (2, 3)
    assert output.policy.dtype == output.value.dtype == torch.float32
    assert output.policy.isfinite().all()
    assert output.value.flatten().unique().numel() == 6, "each picture has a value of its own"
    assert {path: tuple(tensor.shape) for path, tensor in leaves(output.state)} == (
        {"hidden": (3, 256), "cell": (3, 256)} if core == "lstm" else {}
    )


@pytest.mark.parametrize("torso", ["shallow", "deep"])
def test_step_by_step_is_the_whole_unroll_with_ends_inside(torso):
    """What an actor computes as it plays is what the learner computes from the unroll: T x [1, B] = [T, B]."""
    length, batch = 5, 3
    spec = with_last_inputs(ATARI, action=True, reward=True)
    network = make_network(spec, NetworkConfig(torso=torso, core="lstm"))
    observation = observations(spec, length, batch)
    first = torch.zeros(length, batch, dtype=torch.bool)
    first[0, 0] = first[2, 1] = first[3, 1] = first[4, 2] = True
    state = {path: torch.randn(batch, 256) for path in ("hidden", "cell")}
    with torch.no_grad():
        whole = network(observation, first, state)
        elsewhere = network(observation, first, {path: torch.randn(batch, 256) for path in state})
        stepped = []
        for t in range(length):
            now = {path: array[t : t + 1] for path, array in observation.items()}
            stepped.append(network(now, first[t : t + 1], state))
            state = stepped[-1].state
    for name in ("policy", "value"):
        together = torch.cat([getattr(step, name) for step in stepped])
        torch.testing.assert_close(together, getattr(whole, name), atol=1e-5, rtol=1e-4)
    for path in ("hidden", "cell"):
        torch.testing.assert_close(state[path], whole.state[path], atol=1e-5, rtol=1e-4)
    begun = first.cumsum(0) > 0
    assert torch.equal(whole.value == elsewhere.value, begun), "only an episode that began before remembers its start"


def test_bytes_are_scaled_once_and_in_full():
    every_byte = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    scaled = in_unit_range(every_byte)
    assert scaled.dtype == torch.float32
    assert (scaled.min(), scaled.max()) == (0.0, 1.0)
    torch.testing.assert_close(scaled.flatten(), torch.linspace(0, 1, 256))
    floats = torch.rand(1, 1, 16, 16) * 300
    assert torch.equal(in_unit_range(floats), floats)


@pytest.mark.parametrize("standardise", [False, True])
@pytest.mark.parametrize(("spec", "shape"), [(ATARI, (2, 4, 84, 84)), (DMLAB, (2, 3, 72, 96))])
def test_convolutions_see_pictures_that_are_channels_last_in_memory(spec, shape, standardise):
    torso = Shallow(spec.observation, NetworkConfig(torso="shallow", standardise=standardise))
    seen = []
    torso._convolutions.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    torso(observations(spec, 1, 2)[0])
    assert seen[0].shape == shape
    assert seen[0].is_contiguous(memory_format=torch.channels_last)


def test_a_stack_of_colours_has_the_oldest_picture_first():
    colours = ArraySpec((4, 8, 8, 3), "uint8")
    stack = observations(EnvSpec(colours, ATARI.action), 1, 1)[0]
    flat = planes(stack, colours)
    assert flat.shape == (1, 12, 8, 8)
    assert torch.equal(planes(stack.movedim(-1, -3), ArraySpec((4, 3, 8, 8), "uint8")), flat)
    for frame in range(4):
        for colour in range(3):
            assert torch.equal(flat[0, 3 * frame + colour], stack[0, frame, :, :, colour])


@pytest.mark.parametrize(("torso", "least"), [("shallow", 20), ("nature", 36), ("opt_cnn", 80), ("compact", 10)])
def test_an_image_that_is_too_small_is_a_users_mistake(torso, least):
    """The smallest side that works, by hand: each layer must leave a kernel's width for the next."""

    def make(side):
        spec = EnvSpec(ArraySpec((side, side, 3), "uint8"), ATARI.action)
        return make_network(spec, NetworkConfig(torso=torso))

    assert weights(make(least)) > 0
    with pytest.raises(UserError, match=rf"network\.torso={torso}.*{least - 1}x{least - 1}.*too small.*torso=small"):
        make(least - 1)


@pytest.mark.parametrize("torso", ["deep", "small"])
def test_padded_torsos_see_any_image(torso):
    spec = EnvSpec(ArraySpec((5, 5, 2), "uint8"), ATARI.action)
    network = make_network(spec, NetworkConfig(torso=torso))
    assert network(observations(spec, 1, 1), torch.zeros(1, 1, dtype=torch.bool), {}).policy.shape == (1, 1, 6)


def test_standardised_pictures_have_mean_zero_and_deviation_one():
    pictures = torch.rand(5, 4, 9, 7) * torch.arange(1, 6).view(5, 1, 1, 1) + 3
    even = standardised(torch.full((1, 4, 9, 7), 0.7))
    result = standardised(pictures)
    torch.testing.assert_close(result.mean((1, 2, 3)), torch.zeros(5), atol=1e-5, rtol=0)
    torch.testing.assert_close(result.std((1, 2, 3), correction=0), torch.ones(5), atol=1e-3, rtol=0)
    torch.testing.assert_close(even, torch.zeros_like(even), atol=1e-3, rtol=0)


def test_a_standardising_network_does_not_see_the_brightness():
    spec = EnvSpec(ArraySpec((4, 42, 42), "uint8"), ActionSpec((), (3,)))
    dim = torch.randint(0, 100, (1, 2, 4, 42, 42), dtype=torch.uint8)
    seen = {}
    for standardise in (True, False):
        network = make_network(spec, NetworkConfig(torso="compact", standardise=standardise))
        first = torch.zeros(1, 2, dtype=torch.bool)
        seen[standardise] = [network(picture, first, {}).value for picture in (dim, dim + 50)]
    torch.testing.assert_close(*seen[True], atol=1e-3, rtol=1e-3)
    assert not torch.allclose(*seen[False], atol=1e-3)
