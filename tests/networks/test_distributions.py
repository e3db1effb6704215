import math

import pytest
import torch
from torch import distributions as reference

from pronk.networks.distributions import Categorical, Gaussian, MultiCategorical, distribution_for, parameter_count
from pronk.types import ActionSpec

CHOICES = (2, 4, 3)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def frequencies(samples, options):
    return torch.bincount(samples.flatten(), minlength=options) / samples.numel()


def renormalised(logits, mask):
    """The distribution over the allowed choices alone, given as probabilities of all of them."""
    weights = logits.double().exp() * mask
    return weights / weights.sum(-1, keepdim=True)


def test_categorical_agrees_with_torch():
    logits = 3 * torch.randn(5, 2, 4)
    ours, theirs = Categorical(logits), reference.Categorical(logits=logits)
    for action in range(4):
        chosen = torch.full((5, 2), action)
        torch.testing.assert_close(ours.log_prob(chosen), theirs.log_prob(chosen))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    uniform = reference.Categorical(logits=torch.zeros_like(logits))
    torch.testing.assert_close(ours.kl_from_uniform(), reference.kl_divergence(uniform, theirs))
    assert torch.equal(ours.mode(), logits.argmax(-1))


def test_categorical_samples_as_often_as_it_says():
    logits = torch.tensor([0.5, -1.0, 2.0, -3.0])
    samples = Categorical(logits.expand(200_000, 4)).sample(generator())
    assert samples.shape == (200_000,)
    torch.testing.assert_close(frequencies(samples, 4), logits.softmax(-1), atol=0.005, rtol=0)


def test_masked_categorical_is_the_renormalised_one():
    logits = 2 * torch.randn(6, 5)
    mask = torch.rand(6, 5) < 0.5
    mask[:, 2] = True
    expected, ours = renormalised(logits, mask), Categorical(logits, mask)
    for row, action in mask.nonzero().tolist():
        assert ours.log_prob(torch.full((6,), action))[row].item() == pytest.approx(
            math.log(expected[row, action]), abs=1e-5
        )
    entropy = [-sum(p * math.log(p) for p in row if p > 0) for row in expected.tolist()]
    assert ours.entropy().tolist() == pytest.approx(entropy, abs=1e-5)
    counts = [sum(p > 0 for p in row) for row in expected.tolist()]
    far = [-sum(math.log(p * n) / n for p in row if p > 0) for row, n in zip(expected.tolist(), counts, strict=True)]
    assert ours.kl_from_uniform().tolist() == pytest.approx(far, abs=1e-5)
    assert mask.gather(1, ours.mode().unsqueeze(1)).all()


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.float32])
def test_a_masked_choice_is_never_sampled_however_likely_it_was(dtype):
    logits, mask = torch.tensor([-60.0, 50.0, -59.5, 90.0]), torch.tensor([1, 0, 1, 0]).to(dtype)
    samples = Categorical(logits.expand(200_000, 4), mask.expand(200_000, 4)).sample(generator())
    expected = renormalised(logits, mask).float()
    torch.testing.assert_close(frequencies(samples, 4), expected, atol=0.005, rtol=0)
    assert not ((samples == 1) | (samples == 3)).any()


def test_a_masked_choice_gets_no_gradient():
    logits = torch.randn(3, 4, requires_grad=True)
    mask = torch.tensor([1, 0, 1, 1]).expand(3, 4)
    masked = Categorical(logits, mask)
    (masked.log_prob(torch.tensor([0, 2, 3])).sum() + masked.entropy().sum()).backward()
    assert not logits.grad[:, 1].any()
    assert logits.grad[:, [0, 2, 3]].all()


def test_a_row_with_every_choice_masked_stays_finite():
    logits = torch.randn(2, 3, requires_grad=True)
    masked = Categorical(logits, torch.tensor([[0, 0, 0], [1, 1, 0]]))
    action = masked.sample(generator())
    log_prob, entropy = masked.log_prob(action), masked.entropy()
    (log_prob + entropy).sum().backward()
    assert log_prob.isfinite().all()
    assert entropy.isfinite().all()
    assert logits.grad.isfinite().all()
    assert 0 <= action[0] < 3


def test_extreme_logits_stay_finite():
    extreme = Categorical(torch.tensor([[1e4, -1e4, 0.0]]))
    assert extreme.entropy().item() == pytest.approx(0.0, abs=1e-6)
    assert extreme.log_prob(torch.tensor([1])).item() == pytest.approx(-2e4)
    assert extreme.sample(generator()).item() == 0


def test_multi_categorical_is_independent_categoricals():
    logits = torch.randn(5, 2, sum(CHOICES))
    parts = [reference.Categorical(logits=part) for part in logits.split(CHOICES, -1)]
    ours = MultiCategorical(CHOICES, logits)
    action = ours.sample(generator())
    assert action.shape == (5, 2, 3)
    expected = sum(part.log_prob(action[..., i]) for i, part in enumerate(parts))
    torch.testing.assert_close(ours.log_prob(action), expected)
    torch.testing.assert_close(ours.entropy(), sum(part.entropy() for part in parts))
    assert torch.equal(ours.mode(), torch.stack([part.probs.argmax(-1) for part in parts], -1))


def test_masked_multi_categorical_masks_each_choice_by_its_own_part():
    logits = torch.randn(sum(CHOICES))
    mask = torch.tensor([1, 0, 0, 1, 1, 0, 0, 1, 1])
    ours = MultiCategorical(CHOICES, logits.expand(100_000, -1), mask.expand(100_000, -1))
    samples = ours.sample(generator())
    starts = [0, 2, 6]
    parts = [renormalised(logits[s : s + n], mask[s : s + n]) for s, n in zip(starts, CHOICES, strict=True)]
    for i, part in enumerate(parts):
        got = frequencies(samples[:, i], CHOICES[i])
        torch.testing.assert_close(got, part.float(), atol=0.01, rtol=0)
        assert not got[part == 0].any()
    expected = sum(part[samples[:, i]].log() for i, part in enumerate(parts)).float()
    torch.testing.assert_close(ours.log_prob(samples), expected)
    entropy = sum(-(part * part.log().nan_to_num()).sum().item() for part in parts)
    assert ours.entropy()[0].item() == pytest.approx(entropy, abs=1e-5)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_gaussian_agrees_with_torch(shape):
    size = math.prod(shape)
    mean, log_std = torch.randn(5, 2, size), 0.5 * torch.randn(5, 2, size)
    ours = Gaussian(shape, torch.cat([mean, log_std], -1))
    theirs = reference.Independent(reference.Normal(mean, log_std.exp()), 1)
    action = ours.sample(generator())
    assert action.shape == (5, 2, *shape)
    torch.testing.assert_close(ours.log_prob(action), theirs.log_prob(action.reshape(5, 2, size)))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    assert torch.equal(ours.mode(), mean.reshape(5, 2, *shape))


def test_gaussian_samples_have_its_mean_and_spread():
    mean, log_std = torch.tensor([3.0, -1.0]), torch.tensor([-1.0, 0.5])
    samples = Gaussian((2,), torch.cat([mean, log_std]).expand(100_000, 4)).sample(generator())
    torch.testing.assert_close(samples.mean(0), mean, atol=0.03, rtol=0)
    torch.testing.assert_close(samples.std(0), log_std.exp(), atol=0.03, rtol=0)
    assert abs(torch.corrcoef(samples.T)[0, 1]) < 0.02


ACTIONS = [ActionSpec((), (4,)), ActionSpec((3,), CHOICES), ActionSpec((1,), (5,)), ActionSpec((2, 3)), ActionSpec(())]


@pytest.mark.parametrize("action", ACTIONS)
def test_the_right_distribution_for_each_action_space(action):
    made = distribution_for(action)(torch.randn(7, 2, parameter_count(action)), None)
    for actions in (made.sample(generator()), made.mode()):
        assert actions.shape == (7, 2, *action.shape)
        assert str(actions.dtype) == f"torch.{action.array.dtype}"
        assert made.log_prob(actions).shape == made.entropy().shape == (7, 2)


@pytest.mark.parametrize("action", ACTIONS)
def test_samples_come_from_the_generator_alone(action):
    made = distribution_for(action)(torch.randn(50, parameter_count(action)), None)
    before = torch.get_rng_state()
    one, same, other = (made.sample(generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(before, torch.get_rng_state())
