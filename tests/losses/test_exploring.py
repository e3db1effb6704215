"""The bonus that keeps a policy exploring, and why the entropy alone is not enough."""

import pytest
import torch

from pronk.losses.exploring import exploration
from pronk.networks.distributions import Categorical, Gaussian, MultiCategorical

COUNTS = torch.tensor([[1.0, 0.0], [1.0, 1.0]])


def test_the_bonus_is_entropy_less_the_distance_from_uniform_over_the_valid_steps():
    logits = torch.randn(2, 2, 3, generator=torch.Generator().manual_seed(1))
    policy = Categorical(logits)
    bonus, entropy = exploration(policy, COUNTS, entropy_cost=0.5, barrier_cost=0.2)
    expected = (0.5 * policy.entropy() - 0.2 * policy.kl_from_uniform())[COUNTS > 0].sum()
    torch.testing.assert_close(bonus, expected)
    torch.testing.assert_close(entropy, policy.entropy()[COUNTS > 0].sum())


def test_a_barrier_of_zero_changes_not_a_bit():
    logits = torch.randn(2, 2, 3)
    bonus, entropy = exploration(Categorical(logits), COUNTS, entropy_cost=0.01, barrier_cost=0.0)
    assert bonus.item() == (0.01 * entropy).item()


@pytest.mark.parametrize("probability", [1e-2, 1e-6, 1e-12])
def test_the_gradient_of_the_barrier_does_not_vanish_with_the_probability(probability):
    logits = torch.tensor([[[0.0, 0.0, 0.0]]], dtype=torch.float64)
    logits[..., 0] = torch.tensor(2 * probability / (1 - probability)).log()
    logits.requires_grad_()
    exploration(Categorical(logits), torch.ones(1, 1), entropy_cost=0.0, barrier_cost=1.0).bonus.backward()
    assert logits.grad[0, 0, 0].item() == pytest.approx(1 / 3 - probability, rel=1e-4)


def test_an_option_that_is_bad_stays_as_rare_as_the_module_says():
    """Follow the exact policy gradient of a bandit to its end: the last of four options has the advantage -2."""
    reward, barrier = torch.tensor([0.0, 0.0, 0.0, -2.0], dtype=torch.float64), 0.01
    logits = torch.zeros(1, 1, 4, dtype=torch.float64, requires_grad=True)
    for _ in range(20_000):
        bonus = exploration(Categorical(logits), torch.ones(1, 1), entropy_cost=0.0, barrier_cost=barrier).bonus
        (gradient,) = torch.autograd.grad((logits.softmax(-1) * reward).sum() + bonus, logits)
        logits.data += gradient
    assert logits.softmax(-1)[0, 0, 3].item() == pytest.approx(barrier / (4 * 2.0), rel=0.02)


def test_options_that_are_not_allowed_do_not_count():
    logits = torch.tensor([[[1.0, 1.0, 5.0]]])
    policy = Categorical(logits, torch.tensor([[[1, 1, 0]]]))
    assert exploration(policy, torch.ones(1, 1), 0.0, 1.0).bonus.item() == pytest.approx(0.0, abs=1e-6)
    nothing = Categorical(logits, torch.zeros(1, 1, 3))  # as in the last observation of an episode
    assert exploration(nothing, torch.zeros(1, 1), 0.0, 1.0).bonus.item() == 0.0


def test_several_choices_add_up_and_real_numbers_have_no_barrier():
    logits = torch.randn(2, 2, 5)
    parts = Categorical(logits[..., :2]).kl_from_uniform() + Categorical(logits[..., 2:]).kl_from_uniform()
    torch.testing.assert_close(MultiCategorical((2, 3), logits).kl_from_uniform(), parts)
    assert not Gaussian((3,), torch.randn(2, 2, 6)).kl_from_uniform().any()
