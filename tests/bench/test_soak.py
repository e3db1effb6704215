"""The slopes of benchmarks/soak.py: a leak is found, noise is not."""

import numpy as np
import pytest

from benchmarks.soak_slopes import BLOCKS, QUANTITIES, fit

SECONDS = np.arange(0.0, 7200.0, 10.0)
MEMORY, SPEED = QUANTITIES["pss_mib"], QUANTITIES["steps_per_second"]


def wandering(seed: int, alike: float) -> np.ndarray:
    """Noise of standard deviation 1 in which each sample is like the one before."""
    chance = np.random.default_rng(seed)
    values = [0.0]
    for _ in SECONDS[1:]:
        values.append(alike * values[-1] + chance.normal() * (1 - alike**2) ** 0.5)
    return np.array(values)


def test_a_straight_line_is_fitted_exactly():
    slope = fit(SECONDS, 100 + 5 * SECONDS / 3600)
    assert slope.per_hour == pytest.approx(5)
    assert slope.error == pytest.approx(0, abs=1e-9)
    assert slope.is_bad(MEMORY)
    assert not slope.is_bad(SPEED), "it rises"


def test_what_does_not_change_has_no_slope():
    slope = fit(SECONDS, np.full(len(SECONDS), 12.0))
    assert slope.is_zero
    assert not slope.is_bad(QUANTITIES["descriptors"])


@pytest.mark.parametrize("alike", [0.0, 0.9, 0.97])
def test_noise_is_seldom_taken_for_a_slope(alike):
    wrong = sum(not fit(SECONDS, 300 + wandering(seed, alike)).is_zero for seed in range(200))
    assert wrong <= 4, "also where samples are alike for five minutes"


def test_a_leak_in_noise_is_found():
    found = [fit(SECONDS, 300 + 10 * SECONDS / 3600 + wandering(seed, 0.9)) for seed in range(20)]
    assert all(slope.is_bad(MEMORY) for slope in found)
    assert np.mean([slope.per_hour for slope in found]) == pytest.approx(10, abs=0.5)


def test_a_change_that_does_not_matter_is_no_leak():
    slope = fit(SECONDS, 300 + 1 * SECONDS / 3600)
    assert not slope.is_zero
    assert not slope.is_bad(MEMORY)


def test_too_few_samples_have_no_slope():
    assert fit(SECONDS[: 2 * BLOCKS - 1], SECONDS[: 2 * BLOCKS - 1]) is None
