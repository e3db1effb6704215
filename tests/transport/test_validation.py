"""Only what an honest actor could have sent reaches a batch."""

import numpy as np
import pytest
from through_grpc import LAYOUT, honest

from pronk.layout import UnrollLayout
from pronk.transport.validation import InvalidUnroll, validate_unroll
from pronk.types import ActionSpec, ArraySpec, EnvSpec, leaves, unroll_specs


def sample(layout=LAYOUT):
    unroll = layout.allocate()
    honest(unroll, version=3)
    return unroll


def test_an_honest_unroll_passes():
    unroll = sample()
    validate_unroll(unroll, LAYOUT.specs, newest=3)
    for array, expected in zip(flat(unroll), flat(sample()), strict=True):
        assert array.tobytes() == expected.tobytes(), "checked, not changed"


def flat(unroll):
    return [array for name, field in unroll._asdict().items() for _, array in leaves(field, name)]


def set_byte(array, value):
    array.view(np.uint8)[0, 0] = value


@pytest.mark.parametrize(
    ("field", "spoil"),
    [
        ("action", lambda u: u.action.__setitem__((0, 0), 3)),
        ("action", lambda u: u.action.__setitem__((3, 1), -1)),
        ("observation/label", lambda u: u.observation["label"].__setitem__((4, 0), 5)),
        ("observation/view", lambda u: u.observation["view"].__setitem__((4, 1, 2), np.nan)),
        ("state/core", lambda u: u.state["core"].__setitem__((1, 1), np.inf)),
        ("reward", lambda u: u.reward.__setitem__((0, 0), -np.inf)),
        ("log_prob", lambda u: u.log_prob.__setitem__((0, 0), np.nan)),
        ("log_prob", lambda u: u.log_prob.__setitem__((0, 0), 0.5)),
        ("discount", lambda u: u.discount.__setitem__((0, 0), 1.5)),
        ("discount", lambda u: u.discount.__setitem__((0, 0), -0.1)),
        ("first", lambda u: set_byte(u.first, 2)),
        ("valid", lambda u: set_byte(u.valid, 255)),
        ("episode_return", lambda u: u.episode_return.__setitem__((0, 0), np.inf)),
        ("episode_length", lambda u: u.episode_length.__setitem__((0, 0), -1)),
        ("version", lambda u: u.version.__setitem__(0, 4)),
        ("version", lambda u: u.version.__setitem__(1, -1)),
        ("task", lambda u: u.task.__setitem__(0, -1)),
        ("task", lambda u: u.task.__setitem__(1, 1)),
        ("environment", lambda u: u.environment.__setitem__(0, -1)),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(field, spoil):
    unroll = sample()
    spoil(unroll)
    with pytest.raises(InvalidUnroll, match=field):
        validate_unroll(unroll, LAYOUT.specs, newest=3)


def test_a_density_may_be_above_one():
    layout = UnrollLayout(unroll_specs(EnvSpec(ArraySpec((2,), "uint8"), ActionSpec((2,))), {}, length=2, envs=1))
    unroll = layout.allocate()
    unroll.log_prob[...] = 5.0
    unroll.action[...] = -7.5
    validate_unroll(unroll, layout.specs, newest=0)
    unroll.action[0, 0, 0] = np.nan
    with pytest.raises(InvalidUnroll, match="action"):
        validate_unroll(unroll, layout.specs, newest=0)
