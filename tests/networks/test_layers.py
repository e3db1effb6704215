"""Layers with cheaper gradients: torch's results and torch's gradients."""

import pytest
import torch
from torch import nn

from pronk.networks.layers import Linear, Tanh


def test_tanh_and_its_gradient_are_torchs():
    ours, theirs = (torch.linspace(-30, 30, 4001, requires_grad=True) for _ in range(2))
    Tanh()(ours).sum().backward()
    theirs.tanh().sum().backward()
    torch.testing.assert_close(Tanh()(ours), theirs.tanh(), atol=1e-6, rtol=0)
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-6, rtol=0)
    with torch.no_grad():
        torch.testing.assert_close(Tanh()(ours), theirs.tanh(), atol=1e-6, rtol=0)


def test_tanh_is_torchs_in_bfloat16_too():
    x = torch.linspace(-3, 3, 1001).bfloat16()
    torch.testing.assert_close(Tanh()(x), x.tanh())


@pytest.mark.parametrize("wants_input", [False, True])
@pytest.mark.parametrize(("inputs", "outputs"), [(2, 64), (64, 3)])
def test_a_layer_and_its_gradients_are_torchs(inputs, outputs, wants_input):
    ours, theirs = Linear(inputs, outputs), nn.Linear(inputs, outputs)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(100, inputs)
    seen = [x.clone().requires_grad_(wants_input) for _ in range(2)]
    results = [layer(each) for layer, each in zip((ours, theirs), seen, strict=True)]
    torch.testing.assert_close(*results)
    for result in results:
        result.square().mean().backward()
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)
    torch.testing.assert_close(ours.bias.grad, theirs.bias.grad)
    if wants_input:
        torch.testing.assert_close(seen[0].grad, seen[1].grad)


def test_a_layer_takes_any_leading_axes_and_autocast():
    layer = Linear(3, 5)
    x = torch.randn(4, 6, 3)
    torch.testing.assert_close(layer(x).flatten(0, 1), layer(x.flatten(0, 1)))
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x.flatten(0, 1)).dtype == torch.bfloat16
