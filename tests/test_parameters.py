import copy

import numpy as np
import pytest
import torch
from torch import nn

from pronk.parameters import PADDING, ParameterBlock, ParameterDelay
from pronk.types import Parameters, UserError


class Odd(nn.Module):
    """Sizes that need padding, a buffer, and one weight used twice."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.first = nn.Linear(3, 5)
        self.shared = self.first.weight
        self.scalar = nn.Parameter(torch.randn(()))
        self.register_buffer("mean", torch.randn(7))
        self.register_buffer("extra", torch.randn(2), persistent=False)

    def forward(self, inputs):
        return self.first(inputs) * self.scalar + self.mean[:5] + nn.functional.linear(inputs, self.shared)


def tensors(network):
    return dict(network.named_parameters()) | dict(network.named_buffers())


def test_taking_over_a_network_changes_no_value():
    network = Odd(0)
    before = copy.deepcopy(network)
    ParameterBlock(network)
    assert tensors(network).keys() == tensors(before).keys()
    for name, tensor in tensors(before).items():
        assert torch.equal(tensors(network)[name], tensor)
    assert torch.equal(network(torch.ones(2, 3)), before(torch.ones(2, 3)))


def test_every_weight_and_buffer_is_its_own_view_on_a_cache_line():
    network = Odd(0)
    block = ParameterBlock(network)
    taken = np.zeros(block.values.numel(), int)
    for tensor in tensors(network).values():
        offset = tensor.data_ptr() - block.values.data_ptr()
        assert offset % (4 * PADDING) == 0
        taken[offset // 4 : offset // 4 + tensor.numel()] += 1
    assert taken.sum() == sum(tensor.numel() for tensor in tensors(network).values())
    assert taken.max() == 1
    assert not block.values[torch.from_numpy(taken == 0)].any(), "padding is zero"
    assert block.nbytes == block.bytes().size == 4 * len(taken)


def test_the_block_and_the_network_are_the_same_memory():
    network = Odd(0)
    block = ParameterBlock(network)
    with torch.no_grad():
        block.values.fill_(2.0)
    assert all((tensor == 2.0).all() for tensor in tensors(network).values())
    with torch.no_grad():
        network.first.bias.fill_(3.0)
        network.mean.fill_(4.0)
    assert (block.values == 3.0).sum() == 5
    assert (block.values == 4.0).sum() == 7
    assert (block.weights == 3.0).sum() == 5
    assert not (block.weights == 4.0).any(), "buffers are not for the optimiser"


def test_load_makes_another_network_the_same():
    one, other = Odd(0), Odd(1)
    source, target = ParameterBlock(one), ParameterBlock(other)
    assert source.nbytes == target.nbytes
    target.load(torch.from_numpy(source.bytes().copy()))
    for name, tensor in tensors(one).items():
        assert torch.equal(tensors(other)[name], tensor)
    assert torch.equal(one(torch.ones(2, 3)), other(torch.ones(2, 3)))
    with torch.no_grad():
        one.scalar.fill_(9.0)
    assert other.scalar != 9.0, "a copy, not an alias"


def test_gradients_land_in_the_flat_vector():
    network, inputs = Odd(0), torch.randn(4, 3)
    plain = copy.deepcopy(network)
    block = ParameterBlock(network)
    for module in (network, plain):
        module(inputs).square().sum().backward()
    assert block.gradients.shape == block.weights.shape
    for name, weight in network.named_parameters():
        expected = dict(plain.named_parameters())[name].grad
        offset = (weight.data_ptr() - block.values.data_ptr()) // 4
        landed = block.gradients[offset : offset + weight.numel()].view_as(weight)
        torch.testing.assert_close(landed, expected)
    count = sum(weight.numel() for weight in network.parameters())
    assert (block.gradients != 0).sum() == count, "nothing lands in the padding"


def test_gradients_add_up_until_the_vector_is_zeroed():
    network = Odd(0)
    block = ParameterBlock(network)
    network(torch.ones(2, 3)).sum().backward()
    once = block.gradients.clone()
    network(torch.ones(2, 3)).sum().backward()
    torch.testing.assert_close(block.gradients, 2 * once)
    block.gradients.zero_()
    assert not network.first.weight.grad.any()
    network(torch.ones(2, 3)).sum().backward()
    torch.testing.assert_close(block.gradients, once)


def test_state_dict_loads_into_the_block():
    one, other = Odd(0), Odd(1)
    block = ParameterBlock(other)
    other.load_state_dict(one.state_dict())
    ParameterBlock(one)
    for name, tensor in one.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor)
    assert other.first.weight.data_ptr() >= block.values.data_ptr()
    assert torch.equal(block.values[:15].view(5, 3), one.first.weight)


@pytest.mark.parametrize(
    ("network", "name"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), "1.num_batches_tracked"),
        (nn.Linear(2, 2).double(), "weight"),
        (nn.Linear(2, 2).bfloat16(), "weight"),
    ],
)
def test_other_types_than_float32_are_a_users_mistake(network, name):
    with pytest.raises(UserError, match=f"{name} is torch"):
        ParameterBlock(network)


def test_a_block_of_another_network_is_refused():
    with pytest.raises(RuntimeError):
        ParameterBlock(nn.Linear(8, 8)).load(torch.from_numpy(ParameterBlock(nn.Linear(9, 9)).bytes()))


def test_held_back_parameters_are_copies_of_those_of_so_many_updates_ago():
    delay, block = ParameterDelay(2), np.zeros(4, np.uint8)
    due = []
    for version in range(1, 6):
        block[:] = version  # in place, as the learner does
        due.append(delay.due(Parameters(version, block)))
    assert due[:2] == [None, None]
    assert [(one.version, one.block.tolist()) for one in due[2:]] == [(1, [1] * 4), (2, [2] * 4), (3, [3] * 4)]


def test_parameters_at_once_are_followed_by_none_that_are_older():
    delay, block = ParameterDelay(2), np.zeros(4, np.uint8)
    due = [delay.due(Parameters(version, block), at_once=version == 4) for version in range(1, 9)]
    assert [one and one.version for one in due] == [None, None, 1, 4, None, None, 5, 6]


def test_no_delay_copies_nothing():
    newest = Parameters(7, np.zeros(4, np.uint8))
    assert ParameterDelay(0).due(newest) is newest
