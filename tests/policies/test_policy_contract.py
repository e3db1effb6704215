"""What the actor relies on, for every way to choose actions (`actors.inference`)."""

import contextlib

import numpy as np
import pytest
import torch
from served import MOST, WAYS

from pronk.actor import specs_for
from pronk.config import Config, resolve
from pronk.layout import UnrollLayout
from pronk.networks import make_network
from pronk.parameters import ParameterBlock
from pronk.policies import InferenceSetup, make_inference, make_policy
from pronk.policies.base import TABLE
from pronk.policies.numpy_mlp import small_mlp
from pronk.transport.shared_memory import SharedMemoryTransport
from pronk.types import ActionSpec, ArraySpec, EnvSpec, Parameters, leaves, map_tree

N, T = 3, 6
SEEN = ArraySpec((4,), "float32")
SPECS = {
    "choice": EnvSpec(SEEN, ActionSpec((), (3,))),
    "choices": EnvSpec(SEEN, ActionSpec((2,), (3, 2))),
    "numbers": EnvSpec(SEEN, ActionSpec((2,))),
    "mixed": EnvSpec(
        {"speed": SEEN, "gear": ArraySpec((), "int64", (5,)), "bytes": ArraySpec((2, 3), "uint8")}, ActionSpec((), (3,))
    ),
    "masked": EnvSpec({"board": SEEN, "action_mask": ArraySpec((3,), "int8")}, ActionSpec((), (3,))),
}
CORES = {"none": {}, "lstm": {"network.core": "lstm", "network.core_size": 5}}

pytestmark = pytest.mark.parametrize("way", WAYS)


def test_every_way_is_tried(way):
    assert {inference for inference, _, _ in WAYS.values()} == set(TABLE)


@pytest.fixture
def made(way, tmp_path):
    """(spec, core, seed) -> policy, a network of the same shape, and a function that publishes its parameters."""
    with contextlib.ExitStack() as stack:

        def make(spec="choice", core="none", seed=1):
            inference, transport, served = WAYS[way]
            changes = {"actors.envs": N, "actors.count": 1, "actors.inference": inference, "network.hidden": [8]}
            changes["transport.name"] = transport
            config = resolve(Config().replace(changes | CORES[core] | {"learner.batch_size": N}))
            torch.manual_seed(0)
            network, other = (make_network(SPECS[spec], config.network) for _ in range(2))
            with torch.no_grad():  # far from uniform, so that log probabilities differ
                dict(network.named_parameters()).get("_policy_head._linear.weight", torch.ones(1)).mul_(200)
                for name, buffer in network.named_buffers():  # an observation's scale and centre
                    buffer.uniform_(0.5, 2.0) if name.endswith((".factor", ".shift")) else None
            block = ParameterBlock(network)
            layout = UnrollLayout(specs_for(config, SPECS[spec], network.state_spec))
            port = SharedMemoryTransport(layout, block.nbytes, actors=0, slots=1, gateway_slots=MOST)
            setup = InferenceSetup(config, layout, small_mlp(network, N), port.reader(), tmp_path, pytest.fail)
            learners_half = stack.enter_context(make_inference(setup))
            ticket, refresh = stack.enter_context(served(learners_half, config, other, port))
            policy = make_policy(config, SPECS[spec], seed, ticket)
            stack.enter_context(contextlib.closing(policy))

            def load(version=7):
                port.publish(Parameters(version, block.bytes()))
                refresh(policy)

            return policy, network, load

        yield make


def observations(spec, seed=0):
    """[T, N, ...] arrays, and first [T, N]."""
    generator = np.random.default_rng(seed)

    def draw(leaf):
        if leaf.dtype == "int8":
            mask = generator.integers(0, 2, (T, N, *leaf.shape), np.int8)
            mask[..., 1] = 1
            return mask
        if leaf.dtype in ("int64", "uint8"):
            return generator.integers(0, max((255, *leaf.categories)[-1:]), (T, N, *leaf.shape)).astype(leaf.dtype)
        return generator.normal(size=(T, N, *leaf.shape)).astype(np.float32)

    first = generator.random((T, N)) < 0.3
    return map_tree(draw, SPECS[spec].observation), first


def played(policy, spec, seed=0):
    """Act on T observations; actions [T, N, ...] and log probabilities [T, N]."""
    seen, first = observations(spec, seed)
    steps = [policy.act(map_tree(lambda array, t=t: array[t], seen), first[t]) for t in range(T)]
    return tuple(np.stack(arrays) for arrays in zip(*steps, strict=True))


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("spec", SPECS)
def test_the_learner_computes_the_same_log_probabilities_from_the_unroll(made, spec, core):
    policy, network, load = made(spec, core)
    load()
    state = map_tree(lambda array: torch.from_numpy(array.copy()), policy.state)
    action, log_prob = played(policy, spec)
    assert action.shape == (T, N, *SPECS[spec].action.shape)
    assert action.dtype == SPECS[spec].action.array.dtype
    assert log_prob.shape == (T, N)
    assert log_prob.dtype == np.float32
    seen, first = observations(spec)
    tensors = map_tree(torch.from_numpy, seen)
    with torch.no_grad():
        output = network(tensors, torch.from_numpy(first), state)
        expected = network.distribution(output.policy, tensors).log_prob(torch.from_numpy(action))
    np.testing.assert_allclose(log_prob, expected, rtol=1e-4, atol=1e-5)
    assert len(np.unique(log_prob)) > T, "not the same everywhere"
    for (_, ours), (_, theirs) in zip(leaves(policy.state), leaves(output.state), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_mask_is_obeyed(made):
    policy, _, load = made("masked")
    load()
    for seed in range(20):
        action, _ = played(policy, "masked", seed)
        mask = observations("masked", seed)[0]["action_mask"]
        assert np.take_along_axis(mask, action[..., None], -1).all()


def test_the_state_starts_at_zero_and_stays_as_it_was_read(made):
    policy, _, load = made(core="lstm")
    load()
    before = policy.state
    assert {path: array.shape for path, array in leaves(before)} == {"hidden": (N, 5), "cell": (N, 5)}
    assert not any(array.any() for _, array in leaves(before))
    played(policy, "choice")
    assert not any(array.any() for _, array in leaves(before)), "a later act does not write into it"
    assert all(array.any() for _, array in leaves(policy.state))


def test_version_is_that_of_the_parameters_in_use(made):
    policy, _, load = made()
    for version in (3, 8):
        load(version)
        assert policy.version == version


def test_new_parameters_act_and_the_block_may_be_overwritten(made):
    policy, network, load = made()
    for version, favourite in enumerate((0, 2, 1)):
        with torch.no_grad():
            for weight in network.parameters():
                weight.zero_()
            dict(network.named_parameters())["_policy_head._linear.bias"][favourite] = 50.0
        load(version)  # of the network's own memory
        with torch.no_grad():
            for weight in network.parameters():
                weight.fill_(np.nan)
        assert (played(policy, "choice")[0] == favourite).all()


def test_the_seed_decides_what_is_sampled(made):
    actions = []
    for seed in (1, 1, 2):
        policy, _, load = made(seed=seed)
        load()
        actions.append(np.stack([played(policy, "choice")[0] for _ in range(5)]))
    assert (actions[0] == actions[1]).all()
    assert (actions[0] != actions[2]).any()


def test_closing_twice_is_fine(made):
    policy, _, _ = made()
    policy.close()
    assert policy.close() is None
