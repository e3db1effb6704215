"""PopArt with a mean, a scale and an output for each task, against a slow oracle."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from pronk.networks.popart import MEMORY, PopArtHead

TASKS, FEATURES, T = 3, 5, 7


class Oracle:
    """The statistics of one task, written out: every batch with its weight."""

    def __init__(self) -> None:
        self.batches: list[tuple[float, np.ndarray, np.ndarray]] = []  # weight, targets, advantages

    def see(self, targets: np.ndarray, advantages: np.ndarray) -> None:
        """The newest batch weighs 1/n, or a little at least; the others share the rest as before."""
        share = max(1.0 / (len(self.batches) + 1), 1.0 / MEMORY)
        self.batches = [((1 - share) * weight, *rest) for weight, *rest in self.batches]  # type: ignore[misc]
        self.batches.append((share, targets, advantages))

    @property
    def mean(self) -> float:
        return sum(weight * targets.mean() for weight, targets, _ in self.batches)

    @property
    def scale(self) -> float:
        second = sum(weight * np.square(targets).mean() for weight, targets, _ in self.batches)
        return float(np.sqrt(second - self.mean**2))

    @property
    def advantage_size(self) -> float:
        return float(np.sqrt(sum(weight * np.square(advantages).mean() for weight, _, advantages in self.batches)))


def seen(generator: torch.Generator, tasks: list[int]) -> tuple[torch.Tensor, ...]:
    """Targets and advantages [T, B] whose size depends on the task a hundredfold, and valid steps."""
    task = torch.tensor(tasks)
    size = 100.0 ** (task - 1)
    shape = (T, len(tasks))
    targets = (torch.randn(shape, generator=generator) + 0.5) * size
    advantages = torch.randn(shape, generator=generator) * size / 3
    valid = torch.rand(shape, generator=generator) < 0.7
    return task, targets, advantages, valid


def test_statistics_of_each_task_are_the_oracles() -> None:
    generator = torch.Generator().manual_seed(3)
    head, oracles = PopArtHead(FEATURES, TASKS), [Oracle() for _ in range(TASKS)]
    with torch.no_grad():
        head._linear.weight.normal_(generator=generator)
        head._linear.bias.normal_(generator=generator)
    features = torch.randn(T, 6, FEATURES, generator=generator)
    everyone = torch.tensor([0, 1, 2, 0, 1, 2])
    plans = [[0, 0, 1], [1, 2, 2], [0], [2, 1, 0], [1]] * 5  # a batch need not have every task
    with torch.no_grad():
        for tasks in plans:
            task, targets, advantages, valid = seen(generator, tasks)
            before = head.value(head(features), everyone).estimate
            head.sums.zero_()
            value = head.value(head(torch.randn(T + 1, len(tasks), FEATURES, generator=generator)), task)
            value.observe(targets, advantages, valid)
            head.update()
            torch.testing.assert_close(head.value(head(features), everyone).estimate, before, rtol=1e-3, atol=1e-3)
            for index, oracle in enumerate(oracles):
                chosen = valid & (task == index)
                if chosen.any():
                    oracle.see(targets[chosen].double().numpy(), advantages[chosen].double().numpy())
    assert head.batches.tolist() == [len(oracle.batches) for oracle in oracles]
    for name in ("mean", "scale", "advantage_size"):
        wanted = [getattr(oracle, name) for oracle in oracles]
        np.testing.assert_allclose(getattr(head, name).numpy(), wanted, rtol=2e-3, err_msg=name)


def test_error_and_gradient_of_a_column_are_in_the_scale_of_its_task() -> None:
    torch.manual_seed(1)
    head = PopArtHead(FEATURES, TASKS)
    head.mean.copy_(torch.tensor([0.0, 10.0, -300.0]))
    head.scale.copy_(torch.tensor([0.5, 4.0, 200.0]))
    head.advantage_size.copy_(torch.tensor([0.1, 1.0, 50.0]))
    head.batches.fill_(1.0)
    torch.nn.init.normal_(head._linear.weight)
    features, task = torch.randn(T + 1, TASKS, FEATURES), torch.arange(TASKS)
    value = head.value(head(features), task)
    for index in range(TASKS):  # each by hand
        raw = features[:, index] @ head._linear.weight[index] + head._linear.bias[index]
        torch.testing.assert_close(value.estimate[:, index], head.mean[index] + head.scale[index] * raw)
        target = torch.full((T,), 7.0)
        error = 0.5 * ((target - head.mean[index]) / head.scale[index] - raw[:-1]).square()
        torch.testing.assert_close(value.error(torch.full((T, TASKS), 7.0))[:, index], error)
    scaled = value.scaled(torch.ones(T, TASKS))
    torch.testing.assert_close(scaled[0], torch.tensor([10.0, 1.0, 0.02]))
    value.error(torch.zeros(T, TASKS))[:, 1].sum().backward()
    gradient = head._linear.weight.grad
    assert gradient is not None
    assert gradient[1].abs().sum() > 0
    assert not gradient[[0, 2]].any(), "the outputs of other tasks are not touched"


@pytest.mark.parametrize("split", [1, 2, 4])
def test_learners_with_different_tasks_have_the_statistics_of_all(split: int) -> None:
    """The sums are added up; a learner may have no column of a task at all."""
    generator = torch.Generator().manual_seed(5)
    together = PopArtHead(FEATURES, TASKS)
    apart = copy.deepcopy(together)
    for _ in range(4):
        task, targets, advantages, valid = seen(generator, [0, 0, 1, 2, 1])
        raw = torch.zeros(T + 1, 5, TASKS)
        for head, cuts in ((together, [slice(None)]), (apart, [slice(0, split), slice(split, None)])):
            total = torch.zeros_like(head.sums)
            for cut in cuts:
                head.sums.zero_()
                head.value(raw[:, cut], task[cut]).observe(targets[:, cut], advantages[:, cut], valid[:, cut])
                total += head.sums
            head.sums.copy_(total)
            with torch.no_grad():
                head.update()
    for name in ("mean", "scale", "advantage_size", "batches"):
        torch.testing.assert_close(getattr(apart, name), getattr(together, name), rtol=1e-5, atol=0)
