"""The contract of every core: T steps at once are T single steps, an opened episode cuts off the past, it learns."""

import pytest
import torch

from pronk.config import NetworkConfig
from pronk.networks.cores import make_core
from pronk.networks.cores.attention import heads_for
from pronk.networks.cores.base import TABLE
from pronk.types import leaves, map_tree

T, B, INPUTS, SIZE = 9, 4, 5, 6
WITH_MEMORY = [name for name in TABLE if name != "none"]


def core_of(name, seed=0, window=4):
    torch.manual_seed(seed)
    core = make_core(INPUTS, NetworkConfig(core=name, core_size=SIZE, core_window=window))
    with torch.no_grad():  # some weights start at zero
        for weight in core.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return core


def inputs(seed=0, opened=0.2):
    generator = torch.Generator().manual_seed(seed)
    first = torch.rand(T, B, generator=generator) < opened
    return torch.randn(T, B, INPUTS, generator=generator), first


def state_of(core, batch=B, seed=None):
    """The state of nothing, or the state after some steps."""
    zeros = map_tree(lambda leaf: torch.zeros(batch, *leaf.shape), core.state_spec)
    return zeros if seed is None else map_tree(torch.Tensor.detach, core(*inputs(seed), zeros)[1])


def assert_same(one, other):
    for (path, ours), (_, theirs) in zip(leaves(one), leaves(other), strict=True):
        torch.testing.assert_close(ours, theirs, msg=lambda text, path=path: f"{path}: {text}")


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("seed", [None, 5])
def test_steps_at_once_are_single_steps(name, seed):
    core, (features, first) = core_of(name), inputs()
    assert first[1:].any(), "an episode opens inside"
    state = state_of(core, seed=seed)
    whole, after = core(features, first, state)
    assert whole.shape == (T, B, core.size)
    for t in range(T):
        step, state = core(features[t : t + 1], first[t : t + 1], state)
        torch.testing.assert_close(step[0], whole[t])
    assert_same(state, after)


@pytest.mark.parametrize("name", TABLE)
def test_the_state_is_as_its_spec_says_and_finite(name):
    core, (features, first) = core_of(name), inputs()
    _, state = core(features, first, state_of(core, seed=3))
    described = {path: (leaf.shape, f"torch.{leaf.dtype}") for path, leaf in leaves(core.state_spec)}
    assert {path: (tuple(array.shape[1:]), str(array.dtype)) for path, array in leaves(state)} == described
    assert all(array.shape[0] == B and array.isfinite().all() for _, array in leaves(state))


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("at", [0, 3, T - 1])
def test_nothing_before_first_reaches_beyond_it(name, at):
    core = core_of(name)
    features, first = inputs(opened=0.0)
    first[at] = True
    changed = features.clone()
    changed[:at] += 1.0
    one, after_one = core(features, first, state_of(core, seed=3))
    other, after_other = core(changed, first, state_of(core, seed=4))
    fresh, after_fresh = core(features[at:], first[at:] & False, state_of(core))
    for result, after in [(other, after_other), (torch.cat([one[:at], fresh]), after_fresh)]:
        torch.testing.assert_close(result[at:], one[at:])
        assert_same(after, after_one)
    if at and name != "none":
        assert not torch.allclose(one[at - 1], other[at - 1])


@pytest.mark.parametrize("name", WITH_MEMORY)
def test_only_the_environment_whose_episode_opens_is_reset(name):
    core = core_of(name)
    features, first = inputs(opened=0.0)
    one, _ = core(features, first, state_of(core, seed=3))
    first[2, 1] = True
    other, _ = core(features, first, state_of(core, seed=3))
    assert (one != other).any(-1).any(0).tolist() == [False, True, False, False]


@pytest.mark.parametrize("name", TABLE)
def test_the_gradient_reaches_every_weight_and_what_is_remembered(name):
    core = core_of(name)
    features, first = inputs(opened=0.0)
    features.requires_grad_()
    core(features, first, state_of(core, seed=3))[0][-1].square().sum().backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in core.parameters())
    assert all(weight.grad.any() for weight in core.parameters())
    assert features.grad[-2].any() == (name != "none")
    features.grad = None
    first[-1] = True
    core(features, first, state_of(core, seed=3))[0][-1].square().sum().backward()
    assert not features.grad[-2].any()


@pytest.mark.parametrize("window", [2, 4, 20])
def test_attention_sees_as_many_observations_as_its_window(window):
    core = core_of("attention", window=window)
    features, first = inputs(opened=0.0)
    features.requires_grad_()
    core(features, first, state_of(core))[0][-1].square().sum().backward()
    assert features.grad.flatten(1).any(1).tolist() == [age < window for age in reversed(range(T))]


def test_attention_against_a_loop_over_steps():
    """A slow oracle: for each step, collect what is visible, then attend to it with the textbook's formula."""
    torch.manual_seed(1)
    core = make_core(INPUTS, NetworkConfig(core="attention", core_size=32, core_window=4))
    assert core._heads == 2
    with torch.no_grad():
        core._age.normal_()
    features, first = inputs()
    result, _ = core(features, first, state_of(core))
    for b in range(B):
        memory = []
        for t in range(T):
            memory = [] if first[t, b] else memory[-3:]
            memory.append(core._inputs(features[t, b]))
            normed = [core._norm(x) for x in memory]
            keys, values = zip(*(core._key_value(x).chunk(2) for x in normed), strict=True)
            query, heads = core._query(normed[-1]), []
            for h in range(2):
                part = slice(16 * h, 16 * (h + 1))
                ages = range(len(memory) - 1, -1, -1)
                score = [key[part] @ query[part] / 4 + core._age[h, age] for key, age in zip(keys, ages, strict=True)]
                weight = torch.stack(score).softmax(0)
                heads.append(sum(w * value[part] for w, value in zip(weight, values, strict=True)))
            out = memory[-1] + core._joined(torch.cat(heads))
            torch.testing.assert_close(result[t, b], out + core._mlp(out))


@pytest.mark.parametrize(("size", "heads"), [(256, 4), (64, 4), (48, 3), (32, 2), (6, 1), (17, 1)])
def test_heads_divide_the_size(size, heads):
    assert heads_for(size) == heads


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_a_core_starts_with_orthogonal_gates_and_only_an_lstm_remembers_at_first(name):
    cell = make_core(6, NetworkConfig(core=name, core_size=8))._cell
    for gate in (*cell.weight_hh.split(8), *cell.weight_ih.split(8)):
        columns = gate.T @ gate
        torch.testing.assert_close(columns, torch.eye(len(columns)), atol=1e-5, rtol=0)
    remembers = torch.zeros(cell.bias_ih.shape)
    remembers[8:16] = float(name == "lstm")  # its forget gate
    torch.testing.assert_close((cell.bias_ih + cell.bias_hh).detach(), remembers)
