"""Values that are finite and yet would break or fake a run: who sends them is not believed."""

import numpy as np
import pytest
from through_grpc import LAYOUT, honest

from pronk.transport.validation import InvalidUnroll, Magnitudes, largest_of


def unroll_with(**fields):
    unroll = LAYOUT.view(np.zeros(LAYOUT.nbytes, np.uint8))
    honest(unroll)
    for name, value in fields.items():
        if name == "view":
            unroll.observation["view"][0, 0, 0] = value
        else:
            getattr(unroll, name)[0, 0] = value
    return unroll


@pytest.mark.parametrize("field", ["reward", "episode_return", "view"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_nobody_is_believed_what_the_learner_could_not_compute_with(field, sign):
    magnitudes = Magnitudes()
    magnitudes.check(unroll_with(**{field: sign * 1e11}), 0)
    with pytest.raises(InvalidUnroll, match=r"holds 1e\+18"):
        magnitudes.check(unroll_with(**{field: sign * 1e18}), 0)


def test_values_are_compared_with_those_of_the_others():
    magnitudes = Magnitudes()
    magnitudes.check(unroll_with(reward=500.0), 0)
    magnitudes.check(unroll_with(reward=4e6), 1)  # 1e4 times as much
    with pytest.raises(InvalidUnroll, match=r"reward holds 6e\+10, where the others sent 4e\+06 at most"):
        magnitudes.check(unroll_with(reward=6e10), 2)


def test_what_was_refused_does_not_count():
    magnitudes = Magnitudes()
    magnitudes.check(unroll_with(reward=1.0), 0)
    for _ in range(3):
        with pytest.raises(InvalidUnroll):
            magnitudes.check(unroll_with(reward=1e8), 1)
    with pytest.raises(InvalidUnroll):
        magnitudes.check(unroll_with(reward=1e8), 2)  # nor did actor 1 prepare the ground


def test_ordinary_rewards_pass_where_the_others_have_none_yet():
    magnitudes = Magnitudes()
    magnitudes.check(unroll_with(), 0)
    magnitudes.check(unroll_with(reward=1000.0, episode_return=5e5), 1)


def test_the_largest_magnitude_does_not_mind_nan():
    assert largest_of(np.array([np.nan, -3.0, 2.0], np.float32)) == 3.0
    assert largest_of(np.full(3, np.nan, np.float32)) == 0.0
    assert largest_of(np.array([7], np.int64)) == 0.0
