"""Layers with cheaper gradients: torch's results and torch's gradients."""

import pytest
import torch
from torch import nn

from pronk.networks.layers import Layers, Stack, Tanh, tanh_by_numpy, tanh_by_sigmoid


def test_tanh_and_its_gradient_are_torchs():
    ours, theirs = (torch.linspace(-30, 30, 4001, requires_grad=True) for _ in range(2))
    Tanh()(ours).sum().backward()
    theirs.tanh().sum().backward()
    torch.testing.assert_close(Tanh()(ours), theirs.tanh(), atol=1e-6, rtol=0)
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-6, rtol=0)


@pytest.mark.parametrize("tanh_", [tanh_by_numpy, tanh_by_sigmoid])
def test_tanh_in_place_is_torchs(tanh_):
    x = torch.linspace(-30, 30, 4001)
    wanted = x.tanh()
    assert tanh_(x) is x
    torch.testing.assert_close(x, wanted, atol=1e-6, rtol=0)


def test_tanh_is_torchs_in_bfloat16_too():
    x = torch.linspace(-3, 3, 1001).bfloat16()
    torch.testing.assert_close(Tanh()(x), x.tanh())


@pytest.mark.parametrize("wants_input", [False, True])
@pytest.mark.parametrize(("ours", "theirs"), [(Tanh, nn.Tanh), (nn.ReLU, nn.ReLU)])
def test_layers_and_their_gradients_are_torchs(monkeypatch, ours, theirs, wants_input):
    fused = []
    monkeypatch.setattr(Stack, "apply", lambda *inputs, apply=Stack.apply: fused.append(1) or apply(*inputs))
    made = Layers(nn.Linear(2, 64), ours(), nn.Linear(64, 3), ours())
    plain = nn.Sequential(nn.Linear(2, 64), theirs(), nn.Linear(64, 3), theirs())
    plain.load_state_dict(made.state_dict())  # the same names
    x = torch.randn(100, 2)
    seen = [x.clone().requires_grad_(wants_input) for _ in range(2)]
    results = [layers(each) for layers, each in zip((made, plain), seen, strict=True)]
    assert len(fused) == 1
    torch.testing.assert_close(*results, atol=2e-6, rtol=1e-5)
    for result in results:
        result.square().mean().backward()
    for mine, other in zip(made.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, atol=1e-6, rtol=1e-4)
    if wants_input:
        torch.testing.assert_close(seen[0].grad, seen[1].grad, atol=1e-6, rtol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(made(x), results[0], atol=2e-6, rtol=1e-5)
    assert len(fused) == 1


def test_layers_with_others_between_them_or_under_autocast_are_plain():
    normed = Layers(nn.Linear(3, 5), nn.LayerNorm(5), Tanh())
    x = torch.randn(4, 3)
    torch.testing.assert_close(normed(x), normed[1](normed[0](x)).tanh(), atol=1e-6, rtol=0)
    with torch.autocast("cpu", torch.bfloat16):
        assert Layers(nn.Linear(3, 5), nn.ReLU())(x).dtype == torch.bfloat16
    assert torch.equal(Layers()(x), x)


def test_the_gradient_of_the_result_is_not_overwritten():
    """It may belong to others, too: an addition passes the same gradient to both of its terms."""
    layers = Layers(nn.Linear(3, 5), Tanh(), nn.Linear(5, 4), Tanh())
    gradient = torch.randn(7, 4)
    before = gradient.clone()
    layers(torch.randn(7, 3)).backward(gradient)
    assert torch.equal(gradient, before)


def test_different_activations_are_plain():
    layers = Layers(nn.Linear(3, 5), Tanh(), nn.Linear(5, 4), nn.ReLU())
    x = torch.randn(7, 3)
    torch.testing.assert_close(layers(x), layers[2](layers[0](x).tanh()).relu(), atol=1e-6, rtol=0)
