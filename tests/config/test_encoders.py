"""Which encoder `network.torso=auto` gives to which entry, and what it says about it."""

import pytest

from pronk.config.encoders import describe, encoder_of, groups, is_image, picture
from pronk.types import ArraySpec


@pytest.mark.parametrize(
    ("shape", "dtype", "encoder"),
    [
        ((), "float32", "mlp"),
        ((4,), "float32", "mlp"),
        ((3000,), "uint8", "mlp"),
        ((10, 5), "float32", "mlp"),  # catch
        ((31, 33), "float32", "mlp"),
        ((32, 32), "uint8", "compact"),
        ((84, 84), "uint8", "shallow"),
        ((2, 2, 2), "float32", "mlp"),
        ((3, 3, 3), "float32", "small"),
        ((7, 7, 3), "uint8", "codes"),  # MiniGrid
        ((10, 10, 4), "bool", "small"),  # MinAtar
        ((10, 10, 4), "float32", "small"),
        ((20, 20, 1), "float32", "small"),
        ((21, 21, 1), "float32", "compact"),
        ((4, 42, 42), "uint8", "compact"),
        ((64, 64, 3), "uint8", "compact"),  # Crafter, Procgen
        ((65, 65, 3), "uint8", "shallow"),
        ((84, 84, 4), "uint8", "shallow"),
        ((4, 84, 84), "float32", "shallow"),
        ((4, 84, 84, 3), "uint8", "shallow"),
        ((4, 3, 84, 84), "uint8", "shallow"),
        ((72, 96, 3), "uint8", "shallow"),
        ((15, 96, 3), "uint8", "compact"),
        ((6, 96, 3), "uint8", "codes"),
        ((6, 96, 3), "float32", "small"),
        ((2, 3, 4, 5, 6), "float32", "mlp"),
    ],
)
def test_the_encoder_of_a_shape(shape, dtype, encoder):
    assert encoder_of(ArraySpec(shape, dtype)) == encoder


def test_labels_and_text_are_no_images():
    assert not is_image(ArraySpec((7, 7, 3), "int64", (5,) * 147))
    assert not is_image(ArraySpec((40, 40), "int64", words=1000))


@pytest.mark.parametrize(
    ("shape", "seen"),
    [
        ((84, 60), (1, 84, 60)),
        ((84, 60, 3), (3, 84, 60)),
        ((3, 84, 60), (3, 84, 60)),
        ((7, 7, 20), (20, 7, 7)),
        ((9, 8, 8), (9, 8, 8)),
        ((4, 84, 60, 3), (12, 84, 60)),
        ((4, 3, 84, 60), (12, 84, 60)),
    ],
)
def test_channels_height_and_width(shape, seen):
    assert picture(ArraySpec(shape, "uint8")) == seen


def test_images_of_one_size_and_kind_share_an_encoder():
    specs = {
        "left": ArraySpec((84, 84, 3), "uint8"),
        "right": ArraySpec((1, 84, 84), "float32"),
        "map": ArraySpec((30, 30, 1), "uint8"),
        "inside": {"speed": ArraySpec((), "float32"), "gear": ArraySpec((), "int64", (6,))},
    }
    found = [(group.encoder, list(group.entries)) for group in groups(specs)]
    assert found == [
        ("shallow", ["left", "right"]),
        ("compact", ["map"]),
        ("mlp", ["inside/speed", "inside/gear"]),
    ]


@pytest.mark.parametrize(("image", "encoder"), [((7, 7, 3), "codes"), ((84, 84, 3), "mlp")])
def test_a_text_goes_with_a_grid_of_codes_wherever_it_stands(image, encoder):
    specs = {"text": ArraySpec((9,), "int64", words=1000), "image": ArraySpec(image, "uint8")}
    assert [group.encoder for group in groups(specs) if "text" in group.entries] == [encoder]


def test_what_was_chosen_in_words():
    specs = {
        "image": ArraySpec((7, 7, 3), "uint8"),
        "direction": ArraySpec((), "int64", (4,)),
        "mission": ArraySpec((9,), "int64", words=1000),
        "speed": ArraySpec((2,), "float32"),
        "places": ArraySpec((3,), "int64", (2, 5, 5)),
    }
    assert describe(specs) == (
        "image (7x7x3 uint8), mission (text of up to 9 words): codes; direction (label of 4), speed (2 numbers), "
        "places (3 labels of 2 to 5): mlp"
    )
    assert describe(ArraySpec((84, 84, 4), "uint8")) == "84x84x4 uint8: shallow"
    assert describe(ArraySpec((4,), "float32")) == "4 numbers: mlp"
    assert describe(ArraySpec((), "float32")) == "1 number: mlp"


def test_a_mask_of_actions_is_not_told_as_an_input_of_the_network():
    assert (
        describe({"action_mask": ArraySpec((5,), "int8"), "speed": ArraySpec((2,), "float32")})
        == "speed (2 numbers): mlp"
    )
