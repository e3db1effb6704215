"""HL-Gauss against sums over bins in plain Python."""

import itertools
import math

import pytest
import torch

from pronk.networks.hl_gauss import (
    BINS,
    FARTHEST,
    REACH,
    SIGMA,
    WIDTH,
    HistogramHead,
    centres,
    distance,
    edges,
    histogram,
    mean,
)

TARGETS = [0.0, 0.03, -1.7, 5.25, 9.0, -9.2]


def normal_below(x):
    return 0.5 * math.erfc(-x / math.sqrt(2))


def by_hand(target):
    borders = [-REACH + i * WIDTH for i in range(BINS + 1)]
    mass = [
        normal_below((b - target) / SIGMA) - normal_below((a - target) / SIGMA) for a, b in itertools.pairwise(borders)
    ]
    return [part / sum(mass) for part in mass]


def test_bins_are_as_wide_as_they_say():
    assert edges().tolist() == pytest.approx([-REACH + i * WIDTH for i in range(BINS + 1)], abs=1e-5)
    assert centres().tolist() == pytest.approx([-REACH + (i + 0.5) * WIDTH for i in range(BINS)], abs=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_is_a_normal_distribution_cut_into_bins(target):
    assert histogram(torch.tensor(target)).tolist() == pytest.approx(by_hand(target), abs=1e-5)


def test_the_mean_of_a_targets_histogram_is_the_target():
    targets = torch.linspace(-FARTHEST, FARTHEST, 997)
    torch.testing.assert_close(mean(histogram(targets).log()), targets, atol=2e-3, rtol=0)


def test_a_target_beyond_the_bins_counts_as_just_within():
    far = histogram(torch.tensor([1e6, -1e6, FARTHEST, -FARTHEST]))
    assert far.isfinite().all()
    torch.testing.assert_close(far[:2], far[2:])


@pytest.mark.parametrize("target", TARGETS)
def test_distance_by_hand(target):
    logits = torch.randn(BINS, generator=torch.Generator().manual_seed(1))
    total = sum(math.exp(x) for x in logits.tolist())
    expected = sum(
        p * (math.log(p) - math.log(math.exp(x) / total))
        for p, x in zip(by_hand(target), logits.tolist(), strict=True)
        if p > 0
    )
    assert distance(logits, torch.tensor(target)).item() == pytest.approx(expected, abs=1e-4)


def test_distance_is_zero_only_at_the_target_and_has_a_bounded_gradient():
    targets = torch.tensor(TARGETS)
    at_target = distance(histogram(targets).log().clamp(min=-80.0), targets)
    torch.testing.assert_close(at_target, torch.zeros_like(at_target), atol=1e-4, rtol=0)
    logits = torch.zeros(len(TARGETS), BINS, requires_grad=True)
    distance(logits, 1e6 * targets).sum().backward()
    assert logits.grad.isfinite().all()
    assert (logits.grad.abs().sum(-1) <= 2.0).all()


def test_a_head_values_each_column_by_its_task_in_the_units_of_the_return():
    torch.manual_seed(0)
    head = HistogramHead(5, 2)
    torch.nn.init.normal_(head._linear.weight)
    head.mean.copy_(torch.tensor([3.0, -100.0]))
    head.scale.copy_(torch.tensor([2.0, 50.0]))
    head.batches.fill_(1.0)
    task, target = torch.tensor([1, 0, 1]), 10 * torch.randn(3, 3)
    raw = head(torch.randn(4, 3, 5))
    assert raw.shape == (4, 3, 2, BINS)
    value = head.value(raw, task)
    for t in range(4):
        for b, k in enumerate(task.tolist()):
            logits = raw[t, b, k]
            middle = sum(p * c for p, c in zip(logits.softmax(0).tolist(), centres().tolist(), strict=True))
            assert value.estimate[t, b].item() == pytest.approx(
                (head.mean[k] + head.scale[k] * middle).item(), abs=1e-3
            )
            if t < 3:
                expected = distance(logits, (target[t, b] - head.mean[k]) / head.scale[k])
                torch.testing.assert_close(value.error(target)[t, b], expected)


def test_a_head_learns_a_value_of_any_size():
    torch.manual_seed(0)
    for size in (1e-3, 1.0, 1e3):
        head = HistogramHead(2, 1)
        optimiser = torch.optim.Adam(head.parameters(), 0.05)
        features = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).expand(3, 2, 2)
        target, task = size * torch.tensor([[1.0, -2.0]]).expand(2, 2), torch.zeros(2, dtype=torch.int32)
        for _ in range(300):
            value = head.value(head(features), task)
            head.sums.zero_()
            value.observe(target, torch.zeros(2, 2), torch.ones(2, 2, dtype=torch.bool))
            optimiser.zero_grad()
            value.error(target).mean().backward()
            optimiser.step()
            with torch.no_grad():
                head.update()
        estimate = head.value(head(features), task).estimate
        torch.testing.assert_close(estimate[0] / size, torch.tensor([1.0, -2.0]), atol=0.05, rtol=0)
