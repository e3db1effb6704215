"""A network on several threads: the same outputs and gradients as on one."""

import contextlib
import functools
import threading

import pytest
import torch

from pronk.config import NetworkConfig
from pronk.networks import make_network
from pronk.networks.on_threads import NetworkOnThreads
from pronk.types import ActionSpec, ArraySpec, EnvSpec, map_tree

T, B = 5, 5
VECTOR, IMAGE = ArraySpec((4,), "float32"), ArraySpec((4, 24, 24), "uint8")
SPECS = {
    "mlp": (VECTOR, {"hidden": [8], "normalise": True, "popart": True}),
    "lstm": (VECTOR, {"hidden": [8], "core": "lstm", "core_size": 6}),
    "deep with lstm": (IMAGE, {"torso": "deep", "core": "lstm", "core_size": 6}),
    "dict": ({"a": VECTOR, "b": {"c": IMAGE}, "action_mask": ArraySpec((3,), "int8")}, {"hidden": [8]}),
}


def made(name):
    torch.manual_seed(3)
    observation, config = SPECS[name]
    return make_network(EnvSpec(observation, ActionSpec((), (3,))), NetworkConfig(**config))


def inputs_of(network, columns=B):
    generator = torch.Generator().manual_seed(0)

    def drawn(spec):
        shape = (T, columns, *spec.shape)
        if spec.dtype == "uint8":
            return torch.randint(256, shape, dtype=torch.uint8, generator=generator)
        return torch.randn(shape, generator=generator)

    observation = map_tree(drawn, network.spec.observation)
    state = map_tree(lambda zeros: torch.randn(zeros.shape, generator=generator), network.initial_state(columns))
    return observation, torch.rand(T, columns, generator=generator) < 0.3, state


def gradients(network, forward, inputs):
    """Outputs, and the gradient of every weight of a loss in which each output has another share."""
    network.zero_grad(set_to_none=False)
    for weight in network.parameters():
        weight.grad = torch.zeros_like(weight)
    output = forward(*inputs)
    shares = torch.arange(1.0, 1 + T).view(T, 1, 1)
    loss = (output.policy.square() * shares).mean() + (output.value.sin() * shares[..., 0]).mean()
    loss.backward()
    return output.policy.detach(), output.value.detach(), [weight.grad.clone() for weight in network.parameters()]


@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize("name", SPECS)
def test_outputs_and_gradients_are_those_of_one_thread(name, threads):
    network = made(name)
    inputs = inputs_of(network)
    wanted = gradients(network, network, inputs)
    given = gradients(network, NetworkOnThreads(network, threads, contextlib.nullcontext), inputs)
    torch.testing.assert_close(given, wanted, atol=1e-5, rtol=1e-4)
    assert sum(gradient.abs().sum() > 0 for gradient in given[2]) > len(given[2]) / 2


def test_with_two_threads_the_result_is_the_same_to_the_bit_every_time():
    network = made("deep with lstm")
    inputs, on_threads = inputs_of(network), NetworkOnThreads(network, 2, contextlib.nullcontext)
    first, *others = [gradients(network, on_threads, inputs) for _ in range(5)]
    for other in others:
        torch.testing.assert_close(other, first, atol=0, rtol=0)


@pytest.mark.parametrize(("columns", "threads", "wanted"), [(5, 2, [2, 3]), (4, 4, [1] * 4), (2, 8, [1, 1])])
def test_columns_are_divided_evenly(columns, threads, wanted):
    shares = NetworkOnThreads(made("mlp"), threads, contextlib.nullcontext).shares(columns)
    assert [share.stop - share.start for share in shares] == wanted
    assert [index for share in shares for index in range(share.start, share.stop)] == [*range(columns)]


def test_each_share_is_computed_in_a_thread_of_its_own_with_one_thread_of_torch_and_in_the_context():
    network = made("mlp")
    seen = []

    class Recording(torch.nn.Module):
        def forward(self, observation, first, state):
            seen.append((threading.get_ident(), torch.get_num_threads(), torch.is_autocast_enabled("cpu")))
            return network(observation, first, state)

    autocast = functools.partial(torch.autocast, "cpu", torch.bfloat16)
    NetworkOnThreads(Recording(), 2, autocast)(*inputs_of(network))
    threads, counts, contexts = zip(*seen, strict=True)
    assert len({*threads, threading.get_ident()}) == 3
    assert counts == (1, 1)
    assert contexts == (True, True)


def test_an_error_in_one_thread_is_raised_after_the_others_have_ended():
    network = made("mlp")
    begun, ended = threading.Event(), threading.Event()

    class Failing(torch.nn.Module):
        def forward(self, observation, first, state):
            if first.shape[1] == 2:  # the smaller share
                begun.wait(10)
                raise ValueError("of this share")
            begun.set()
            output = network(observation, first, state)
            ended.set()
            return output

    with pytest.raises(ValueError, match="of this share"):
        NetworkOnThreads(Failing(), 2, contextlib.nullcontext)(*inputs_of(network))
    assert ended.is_set()


def test_an_error_in_a_gradient_is_raised_too():
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("in the gradient")

    network = made("mlp")

    class WithBroken(torch.nn.Module):
        def forward(self, observation, first, state):
            output = network(observation, first, state)
            return output._replace(policy=Broken.apply(output.policy))

    output = NetworkOnThreads(WithBroken(), 2, contextlib.nullcontext)(*inputs_of(network))
    with pytest.raises(ValueError, match="in the gradient"):
        output.policy.sum().backward()
