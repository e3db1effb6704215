"""The contract of every torso: any observation gives finite features; every weight learns; actor and learner agree."""

import pytest
import torch

from pronk.config import NetworkConfig
from pronk.networks import make_network
from pronk.networks.actor_critic import TORSOS
from pronk.networks.auto import Joined
from pronk.networks.codes import CODES, QUESTIONS, WIDTH_WITH_TEXT, Codes
from pronk.networks.images import Compact, Shallow, Small
from pronk.networks.torsos import Flat, Mlp
from pronk.types import ActionSpec, ArraySpec, EnvSpec, leaves, map_tree

T, B = 3, 4

IMAGES = {
    "minatar": ArraySpec((10, 10, 6), "bool"),
    "minatar floats": ArraySpec((10, 10, 4), "float32"),
    "minigrid": ArraySpec((7, 7, 3), "uint8"),
    "stack of minigrid": ArraySpec((4, 7, 7, 3), "uint8"),
    "integers": ArraySpec((9, 9, 2), "int32"),
    "small frame": ArraySpec((42, 42, 1), "uint8"),
    "channels first": ArraySpec((3, 48, 64), "float32"),
    "thin": ArraySpec((12, 90, 3), "uint8"),
    "flat": ArraySpec((5, 90, 3), "uint8"),
    "atari": ArraySpec((4, 84, 84), "uint8"),
    "stack of colour": ArraySpec((2, 66, 70, 3), "uint8"),
    "stack of colour, first": ArraySpec((2, 3, 66, 70), "uint8"),
    "grey": ArraySpec((84, 84), "uint8"),
}
OTHERS = {
    "number": ArraySpec((), "float32"),
    "vector": ArraySpec((5,), "float32"),
    "table": ArraySpec((10, 5), "float32"),
    "bits": ArraySpec((4,), "int8"),
    "flags": ArraySpec((4,), "bool"),
    "cube": ArraySpec((2, 2, 2), "float32"),
    "label": ArraySpec((), "int64", (6,)),
    "labels": ArraySpec((2, 2), "int64", (2, 3, 4, 5)),
    "one of many": ArraySpec((), "int64", (5000,)),
    "many of many": ArraySpec((3, 2), "int64", (900,) * 6),
    "text": ArraySpec((7,), "int64", words=50),
}
MIXES = {
    "babyai": {
        "image": IMAGES["minigrid"],
        "direction": ArraySpec((), "int64", (4,)),
        "mission": OTHERS["text"],
    },
    "two sizes": {"near": IMAGES["atari"], "far": IMAGES["small frame"], "speed": OTHERS["vector"]},
    "one size": {"red": ArraySpec((24, 24, 1), "uint8"), "depth": ArraySpec((1, 24, 24), "float32")},
    "one size, two kinds": {"codes": ArraySpec((7, 7, 3), "uint8"), "heights": ArraySpec((7, 7, 1), "float32")},
    "two grids of codes": {"here": ArraySpec((7, 7, 3), "uint8"), "there": ArraySpec((2, 7, 7), "uint8")},
    "nested": {"a": {"b": {"picture": IMAGES["minatar"]}, "c": OTHERS["label"]}, "d": OTHERS["number"]},
    "images only": {"large": IMAGES["grey"], "small": IMAGES["minatar"]},
    "text only": {"mission": OTHERS["text"], "hint": OTHERS["text"]},
    "masked": {"board": IMAGES["minatar"], "action_mask": ArraySpec((3,), "int8")},
}
OBSERVATIONS = IMAGES | OTHERS | MIXES


def network_of(observation, seed=0, **config):
    torch.manual_seed(seed)
    return make_network(EnvSpec(observation, ActionSpec((), (3,))), NetworkConfig(hidden=[8, 7], **config))


def draw(specs, seed=0, leading=(T, B)):
    generator = torch.Generator().manual_seed(seed)

    def one(spec):
        shape = (*leading, *spec.shape)
        if spec.words:
            lengths = torch.randint(1, spec.size + 1, (*leading, 1), generator=generator)
            drawn = torch.randint(1, spec.words + 1, shape, generator=generator)
            return drawn * (torch.arange(spec.size) < lengths)
        if spec.categories:
            classes = torch.tensor(spec.categories).reshape(spec.shape)
            return (torch.rand(shape, generator=generator) * classes).long()
        if spec.dtype == "float32":
            return torch.randn(shape, generator=generator)
        most = {"bool": 2, "int8": 2, "uint8": 256}.get(spec.dtype, 9)
        return torch.randint(most, shape, generator=generator).to(getattr(torch, spec.dtype))

    return map_tree(one, specs)


def run(network, observation, **changes):
    first = torch.zeros(dict(leaves(observation)).popitem()[1].shape[:2], dtype=torch.bool)
    return network(observation, first, {}, **changes)


@pytest.mark.parametrize("config", [{}, {"layer_norm": True}, {"pooling": "average"}, {"normalise": True}], ids=str)
@pytest.mark.parametrize("name", OBSERVATIONS)
def test_auto_sees_every_observation(name, config):
    specs = OBSERVATIONS[name]
    network = network_of(specs, **config)
    observation = draw(specs)
    output = run(network, observation)
    assert output.policy.shape == (T, B, 3)
    assert output.policy.isfinite().all()
    assert output.value.isfinite().all()
    step = run(network, map_tree(lambda array: array[1:2], observation))
    torch.testing.assert_close(step.policy[0], output.policy[1])
    torch.testing.assert_close(step.value[0], output.value[1])
    (output.policy.square().sum() + output.value.square().sum()).backward()
    assert [path for path, weight in network.named_parameters() if weight.grad is None or not weight.grad.any()] == []


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_auto_sees_every_entry(name):
    """Nothing of an observation is dropped: a change of any one entry changes the features."""
    specs = OBSERVATIONS[name]
    network = network_of(specs)
    observation, other = (dict(leaves(draw({"all": specs}, seed))) for seed in (0, 1))

    def value(entries):
        return run(network, nested({"all": specs}, entries)["all"]).value

    before = value(observation)
    for path in observation:
        if not path.endswith("action_mask"):
            assert not torch.allclose(value(observation | {path: other[path]}), before), path


def nested(specs, entries, path=""):
    if isinstance(specs, dict):
        return {key: nested(part, entries, f"{path}/{key}" if path else key) for key, part in specs.items()}
    return entries[path]


FITTING = {
    "mlp": ["vector", "table", "label", "text", "minigrid", "babyai", "nested", "many of many"],
    "small": ["minatar", "minigrid", "babyai", "nested", "one size", "masked", "cube"],
    "codes": ["minigrid", "stack of minigrid", "babyai", "two grids of codes"],
    "compact": ["small frame", "channels first", "thin", "one size", "grey"],
    "shallow": ["atari", "stack of colour", "channels first", "grey"],
    "nature": ["atari", "channels first"],
    "opt_cnn": ["atari"],
    "deep": ["small frame", "minigrid"],
}


@pytest.mark.parametrize(("torso", "name"), [(torso, name) for torso, names in FITTING.items() for name in names])
def test_a_torso_that_is_named_sees_every_observation_that_fits(torso, name):
    network = network_of(OBSERVATIONS[name], torso=torso)
    observation = draw(OBSERVATIONS[name])
    output = run(network, observation)
    assert output.policy.isfinite().all()
    (output.policy.square().sum() + output.value.square().sum()).backward()
    assert [path for path, weight in network.named_parameters() if weight.grad is None or not weight.grad.any()] == []
    step = run(network, map_tree(lambda array: array[1:2], observation))
    torch.testing.assert_close(step.policy[0], output.policy[1])


def test_every_torso_is_in_these_tests():
    assert {"auto", *FITTING} == set(TORSOS)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *[("vector", Mlp), ("text only", Mlp), ("minigrid", Codes), ("minatar", Small), ("grey", Shallow)],
        *[("one size", Compact), ("babyai", Joined), ("two sizes", Joined)],
    ],
)
def test_an_observation_of_one_kind_gets_one_encoder_and_nothing_else(name, kind):
    assert type(network_of(OBSERVATIONS[name])._torso) is kind


def test_the_joined_layer_is_as_wide_as_the_widest_encoder():
    torso = network_of(MIXES["two sizes"])._torso
    assert [encoder.size for encoder in torso._encoders] == [256, 256, 7]
    assert torso.size == 256
    assert [tuple(weight.shape) for weight in torso._layer.parameters()] == [(256, 519), (256,)]


@pytest.mark.parametrize(("name", "width"), [("one of many", 64), ("many of many", 64)])
def test_labels_of_many_classes_are_looked_up_in_a_table(name, width):
    spec = OTHERS[name]
    flat, labels = Flat(spec), draw(spec, leading=(5,))
    assert flat.size == width * spec.size
    table = flat._encoders["entry_0"]._vectors.weight
    assert table.shape == (max(spec.categories), width)
    for row, features in zip(labels.reshape(5, -1), flat(labels), strict=True):
        torch.testing.assert_close(features, torch.cat([table[label] for label in row]))


def test_a_map_of_many_labels_stays_small():
    spec = ArraySpec((21, 79), "int64", (5976,) * 21 * 79)
    assert Flat(spec).size == 21 * 79 * 8


def test_codes_against_a_loop_over_cells():
    specs = {"one": ArraySpec((4, 4, 2), "uint8"), "two": ArraySpec((3, 4, 4), "uint8")}
    torso = Codes(specs, NetworkConfig(torso="codes"))
    observation = draw(specs, leading=(5,))
    seen = []
    torso._convolutions.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    torso(observation)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    bytes_ = torch.cat([observation["one"].permute(0, 3, 1, 2), observation["two"]], 1)
    for m in range(5):
        for y in range(4):
            for x in range(4):
                codes = bytes_[m, :, y, x]
                vector = sum(torso._vectors[channel, code] for channel, code in enumerate(codes.long()))
                torch.testing.assert_close(seen[0][m, :, y, x], torch.cat([vector, codes / 255]))
    assert torso._vectors.shape[1] == CODES


def test_every_cell_answers_what_the_words_ask():
    specs = {"grid": ArraySpec((4, 4, 2), "uint8"), "text": ArraySpec((6,), "int64", words=50)}
    torso = Codes(specs, NetworkConfig(torso="codes"))
    observation = draw(specs, leading=(3,))
    observation["text"][:, 4:] = 0  # no words
    seen = []
    torso._convolutions.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    torso(observation)
    (asked,) = torso._questions
    for m in range(3):
        words = sum(asked._words.weight[word] for word in observation["text"][m, :4])
        questions = (asked._questions.weight @ words + asked._questions.bias).view(WIDTH_WITH_TEXT, QUESTIONS)
        for y in range(4):
            for x in range(4):
                codes = observation["grid"][m, y, x].long()
                cell = torso._vectors[0, codes[0]] + torso._vectors[1, codes[1]]
                answers = torch.stack([cell @ questions[:, k] for k in range(QUESTIONS)]) / WIDTH_WITH_TEXT**0.5
                expected = torch.cat([cell, answers, codes / 255])
                torch.testing.assert_close(seen[0][m, :, y, x], expected, atol=1e-4, rtol=1e-4)


def test_pooling_is_the_mean_over_the_picture():
    torso = Shallow(IMAGES["atari"], NetworkConfig(torso="shallow", pooling="average"))
    pictures = draw(IMAGES["atari"], leading=(2,))
    features = torso._convolutions(pictures / 255)
    pooled = torch.stack([features[:, channel].flatten(1).mean(1) for channel in range(32)], 1)
    torch.testing.assert_close(torso(pictures), torch.relu(torso._linear(pooled)))
    assert torso._linear.in_features == 32


def test_layer_norm_stands_before_each_activation():
    torso = Mlp(OTHERS["vector"], NetworkConfig(torso="mlp", hidden=[8, 7], layer_norm=True))
    vectors = torch.randn(6, 5) * 1000
    expected = vectors
    for layer in (module for module in torso._layers if isinstance(module, torch.nn.Linear)):
        summed = layer(expected)
        normed = (summed - summed.mean(1, keepdim=True)) / (summed.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
        expected = normed.tanh()
    torch.testing.assert_close(torso(vectors), expected)
    off = Mlp(OTHERS["vector"], NetworkConfig(torso="mlp", hidden=[8, 7]))
    assert not [module for module in off.modules() if isinstance(module, torch.nn.LayerNorm)]


def test_auto_standardises_pictures_and_a_named_torso_only_if_asked():
    def seen(dtype_scale, **config):
        network = network_of(ArraySpec((42, 42, 1), "float32"), **config)
        pictures = draw(ArraySpec((42, 42, 1), "float32"))
        return run(network, pictures * dtype_scale).value

    torch.testing.assert_close(seen(1.0), seen(1e4), atol=1e-3, rtol=1e-3)
    assert not torch.allclose(seen(1.0, torso="compact"), seen(1e4, torso="compact"))
    torch.testing.assert_close(seen(1.0, torso="compact", standardise=True), seen(1.0))
    torch.testing.assert_close(seen(1.0, torso="compact"), seen(1.0, standardise=False))
