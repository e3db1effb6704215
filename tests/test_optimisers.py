import copy
import itertools
import math

import pytest
import torch
from torch import nn

from pronk.config import OptimiserConfig
from pronk.optimisers import LOWEST_FACTOR, OPTIMISERS, KlBrake, make_optimiser
from pronk.parameters import ParameterBlock

CPU = torch.device("cpu")


def tensorflow_rmsprop(weight, gradients, rates, decay, epsilon, momentum):
    """ApplyRMSProp of TensorFlow 1, for one number: ms starts at 1, mom at 0."""
    ms, mom = 1.0, 0.0
    for gradient, rate in zip(gradients, rates, strict=True):
        ms = decay * ms + (1 - decay) * gradient**2
        mom = momentum * mom + rate * gradient / math.sqrt(ms + epsilon)
        weight -= mom
    return weight


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("decay", [0.5, 0.99])
@pytest.mark.parametrize("epsilon", [1e-5, 0.1])
def test_rmsprop_tf_is_tensorflows_formula(momentum, decay, epsilon):
    torch.manual_seed(0)
    start, gradients = torch.randn(4, dtype=torch.float64), torch.randn(20, 4, dtype=torch.float64)
    rates = [0.03 * (1 - t / 20) for t in range(20)]
    weights, gradient = start.clone(), torch.zeros_like(start)
    config = OptimiserConfig(name="rmsprop_tf", decay=decay, epsilon=epsilon, momentum=momentum)
    optimiser = make_optimiser(weights, gradient, config)
    for values, rate in zip(gradients, rates, strict=True):
        gradient.copy_(values)
        optimiser.step(rate)
    expected = [
        tensorflow_rmsprop(start[i].item(), gradients[:, i].tolist(), rates, decay, epsilon, momentum) for i in range(4)
    ]
    assert weights.tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_bias_correction_divides_v_by_what_its_start_at_zero_took_from_it(momentum):
    decay, epsilon, rate = 0.99, 1e-5, 0.1
    weights, gradient = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    config = OptimiserConfig(name="rmsprop", decay=decay, epsilon=epsilon, momentum=momentum, bias_correction=True)
    optimiser = make_optimiser(weights, gradient, config)
    weight = velocity = square = 0.0
    for update, value in enumerate(torch.randn(300, dtype=torch.float64).tolist(), 1):
        gradient.fill_(value)
        optimiser.step(rate)
        square = decay * square + (1 - decay) * value**2
        velocity = momentum * velocity + value / (math.sqrt(square / (1 - decay**update)) + epsilon)
        weight -= rate * velocity
        if update == 1:  # of the size of the learning rate, where PyTorch's is ten times that
            assert abs(weights.item()) == pytest.approx(rate, rel=1e-3)
    assert weights.item() == pytest.approx(weight, rel=1e-9)


def test_the_two_rmsprops_differ_where_they_should():
    moved = {}
    for name in ("rmsprop", "rmsprop_tf"):
        weights, gradient = torch.zeros(1), torch.tensor([0.1])
        make_optimiser(weights, gradient, OptimiserConfig(name=name, epsilon=0.01, decay=0.99)).step(1.0)
        moved[name] = -weights.item()
    assert moved["rmsprop"] == pytest.approx(0.1 / (math.sqrt(0.01 * 0.1**2) + 0.01), rel=1e-5)
    assert moved["rmsprop_tf"] == pytest.approx(0.1 / math.sqrt(0.99 + 0.01 * 0.1**2 + 0.01), rel=1e-5)


def torch_optimiser(module, config):
    """torch's own, over the separate parameters of a module, from the configuration's meaning."""
    if config.name == "adam":
        return torch.optim.Adam(module.parameters(), betas=(0.9, 0.999), eps=config.epsilon)
    return torch.optim.RMSprop(
        module.parameters(), alpha=config.decay, eps=config.epsilon, momentum=config.momentum, centered=False
    )


@pytest.mark.parametrize(("name", "momentum"), [("adam", 0.0), ("rmsprop", 0.0), ("rmsprop", 0.9)])
@pytest.mark.parametrize("epsilon", [1e-5, 0.1])
def test_one_flat_block_learns_like_torchs_optimiser_over_separate_parameters(name, momentum, epsilon):
    torch.manual_seed(0)
    config = OptimiserConfig(name=name, epsilon=epsilon, decay=0.9, momentum=momentum)
    flat = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
    plain = copy.deepcopy(flat)
    block = ParameterBlock(flat)
    ours, theirs = make_optimiser(block.weights, block.gradients, config), torch_optimiser(plain, config)
    start = flat[0].weight.detach().clone()
    for update in range(15):
        inputs, rate = torch.randn(8, 3), 0.01 * (1 - update / 15)
        block.gradients.zero_()
        theirs.zero_grad()
        for module in (flat, plain):
            (module(inputs) - inputs.sum(-1, keepdim=True)).square().mean().backward()
        ours.step(rate)
        theirs.param_groups[0]["lr"] = rate
        theirs.step()
        for one, other in zip(flat.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(one, other, atol=1e-6, rtol=0)
    assert (flat[0].weight - start).abs().max() > 0.01


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_zero_gradient_or_a_zero_rate_moves_nothing_at_first(name):
    weights, gradient = torch.ones(3), torch.tensor([0.0, 1.0, -2.0])
    optimiser = make_optimiser(weights, gradient, OptimiserConfig(name=name))
    optimiser.step(0.0)
    assert weights.tolist() == [1.0, 1.0, 1.0]
    optimiser.step(0.1)
    assert weights[0] == 1.0
    assert weights[1] < 1.0 < weights[2]


@pytest.mark.parametrize(("ours", "saved"), itertools.permutations(OPTIMISERS, 2))
def test_the_state_of_another_optimiser_is_refused(ours, saved):
    def made(name):
        return make_optimiser(torch.zeros(4), torch.ones(4), OptimiserConfig(name=name, momentum=0.9))

    with pytest.raises(ValueError, match=ours):
        made(ours).load_state(made(saved).state)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_weight_decay_is_apart_from_the_gradient(name):
    """As AdamW has it, for every optimiser: with no gradient the weights shrink, and no running average sees it."""
    weights, gradient = torch.ones(3), torch.zeros(3)
    optimiser = make_optimiser(weights, gradient, OptimiserConfig(name=name, weight_decay=0.5))
    optimiser.step(0.1)
    optimiser.step(0.2)
    assert weights.tolist() == pytest.approx([0.95 * 0.9] * 3)


def test_adam_with_weight_decay_is_adamw():
    torch.manual_seed(0)
    start, gradients = torch.randn(4, dtype=torch.float64), torch.randn(20, 4, dtype=torch.float64)
    weights, gradient = start.clone(), torch.zeros_like(start)
    ours = make_optimiser(weights, gradient, OptimiserConfig(name="adam", weight_decay=0.1, epsilon=1e-8))
    theirs_weights = nn.Parameter(start.clone())
    theirs = torch.optim.AdamW([theirs_weights], lr=0.01, weight_decay=0.1, eps=1e-8)
    for values in gradients:
        gradient.copy_(values)
        theirs_weights.grad = values.clone()
        ours.step(0.01)
        theirs.step()
    assert weights.tolist() == pytest.approx(theirs_weights.tolist(), rel=1e-9)


def test_the_brake_lowers_the_rate_while_the_policy_is_too_far_and_lets_it_recover():
    brake = KlBrake(0.02, CPU)
    for _ in range(100):
        brake.observe(0.01)
    assert brake.factor == 1.0
    factors = []
    for _ in range(60):
        brake.observe(0.5)
        factors.append(brake.factor)
    assert factors == sorted(factors, reverse=True)
    assert factors[-1] < 0.3
    for _ in range(10_000):
        brake.observe(0.5)
    assert brake.factor == pytest.approx(LOWEST_FACTOR)
    resumed = KlBrake(0.02, CPU)
    resumed.values.copy_(brake.values)
    for _ in range(600):
        brake.observe(0.0)
        resumed.observe(0.0)
    assert brake.factor == resumed.factor == 1.0


def test_without_a_limit_the_brake_does_nothing():
    brake = KlBrake(None, CPU)
    brake.observe(1e9)
    assert brake.factor == 1.0
