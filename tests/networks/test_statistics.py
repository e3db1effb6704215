"""Networks that keep statistics of the data: PopArt and observation normalisation, through the real learner."""

import copy

import pytest
import torch

from pronk.config import Config, resolve
from pronk.layout import PER_ENVIRONMENT, UnrollLayout
from pronk.learner import Learner
from pronk.losses import make_loss
from pronk.losses.corrections import vtrace
from pronk.networks import make_network
from pronk.networks.normalising import EntryNormaliser
from pronk.networks.popart import PopArtHead
from pronk.networks.values import PlainValue
from pronk.parameters import ALWAYS_MEASURED, MEASURED_SHARE, ParameterBlock, is_measured
from pronk.types import ActionSpec, ArraySpec, EnvSpec, map_unroll, unroll_specs

T, B, RATE = 6, 4, 0.01
SPEC = EnvSpec(ArraySpec((3,), "float32"), ActionSpec((), (3,)), tasks=("easy", "hard"))


KINDS = {
    "popart": {"network.popart": True, "network.normalise": False},
    "hl_gauss": {"network.value": "hl_gauss", "network.normalise": False},
    "observations": {"network.popart": False, "network.normalise": True},
    "neither": {"network.popart": False, "network.normalise": False},
}


def learner_of(kind="popart", **changes):
    small = {"network.hidden": [8], "optimiser.max_gradient_norm": 0.5, **KINDS[kind]}
    config = Config().replace(small | {name.replace("__", "."): value for name, value in changes.items()})
    return Learner(resolve(config), SPEC, torch.device("cpu"))


def head_of(learner):
    return next(module for module in learner.network.modules() if isinstance(module, PopArtHead))


def entry_of(learner):
    return next(module for module in learner.network.modules() if isinstance(module, EntryNormaliser))


def batch_of(columns=B, seed=0, scale=1.0, shift=0.0):
    """A random batch, off-policy, with ends of episodes and invalid steps; columns alternate between the tasks."""
    generator = torch.Generator().manual_seed(seed)
    batch = map_unroll(torch.from_numpy, UnrollLayout(unroll_specs(SPEC, {}, T, columns)).allocate())
    batch.observation.normal_(generator=generator).add_(shift)
    batch.action.random_(0, 3, generator=generator)
    batch.log_prob.uniform_(-2.0, -0.5, generator=generator)
    batch.reward.normal_(generator=generator).add_(2.0).mul_(scale)
    batch.discount.copy_(torch.rand(T, columns, generator=generator) < 0.8)
    batch.valid.copy_(torch.rand(T, columns, generator=generator) < 0.7)
    batch.task.copy_(torch.arange(columns) % 2)
    return batch


def columns_of(batch, chosen):
    return batch._replace(
        **{
            name: field[chosen] if name in PER_ENVIRONMENT else field[:, chosen]
            for name, field in batch._asdict().items()
            if name not in ("state", "info")
        }
    )


def block_of(learner):
    return torch.from_numpy(learner.parameters().block.copy()).view(torch.float32)


def buffers_of(learner):
    return {name: buffer.clone() for name, buffer in learner.network.named_buffers()}


def todays_loss(distribution, value, batch, config):
    """The paper's loss without a hook for values."""
    log_prob = distribution.log_prob(batch.action)
    log_rho = (log_prob.detach() - batch.log_prob).masked_fill(~batch.valid, -torch.inf)
    targets = vtrace(log_rho, config.discount * batch.discount, batch.reward, value[:-1].detach(), value[-1].detach())
    counts = batch.valid.float()
    weight = 1.0 / counts.sum()
    baseline = 0.5 * ((targets.value - value[:-1]).square() * counts).sum() * weight
    policy = -(log_prob * targets.advantage).sum() * weight
    return (
        policy
        + config.baseline_cost * baseline
        - config.entropy_cost * (distribution.entropy() * counts).sum() * weight
    )


def test_plain_values_change_not_a_bit_of_the_gradient():
    config = resolve(Config().replace(KINDS["neither"] | {"loss.name": "impala", "loss.lambda_": 1.0}))
    batch, gradients = batch_of(), []
    for hooked in (True, False):
        torch.manual_seed(0)
        network = make_network(SPEC, config.network)
        output = network(batch.observation, batch.first, {})
        distribution = network.distribution(output.policy[:-1], batch.observation[:-1])
        value = network.value(output.value, batch.task)
        assert isinstance(value, PlainValue)
        if hooked:
            total = make_loss(config.loss)(distribution, value, batch).total
        else:
            total = todays_loss(distribution, output.value, batch, config.loss)
        total.backward()
        gradients.append([total.detach(), *(weight.grad for weight in network.parameters())])
    for ours, theirs in zip(*gradients, strict=True):
        assert torch.equal(ours, theirs)


def test_a_network_without_statistics_has_nothing_more_to_add_up():
    plain = learner_of("neither")
    assert plain.gradients.numel() == ParameterBlock(copy.deepcopy(plain.network)).weights.numel()


@pytest.mark.parametrize("kind", ["popart", "hl_gauss"])
def test_rewards_in_other_units_are_learnt_alike(kind):
    one, thousand = learner_of(kind), learner_of(kind)
    for seed in range(10):
        reports = [
            learner.step(batch_of(seed=seed, scale=scale), RATE) for learner, scale in ((one, 1), (thousand, 1000))
        ]
        assert reports[1] == pytest.approx(reports[0], rel=1e-3, abs=1e-4)
    for (name, ours), (_, theirs) in zip(
        one.network.named_parameters(), thousand.network.named_parameters(), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4, msg=name)
    torch.testing.assert_close(1000 * head_of(one).mean, head_of(thousand).mean, rtol=1e-3, atol=0.1)
    torch.testing.assert_close(1000 * head_of(one).scale, head_of(thousand).scale, rtol=1e-3, atol=0.1)
    assert (head_of(one).scale != 1).all()


def test_each_task_has_statistics_of_its_own_and_values_stay_as_they_were():
    learner = learner_of()

    def values():
        batch = batch_of(seed=99)
        with torch.no_grad():
            raw = learner.network(batch.observation, batch.first, {}).value
        return learner.network.value(raw, batch.task).estimate

    before = values()
    for seed in range(30):
        batch = batch_of(seed=seed)
        batch.reward[:, batch.task == 1] *= 100
        learner.step(batch, 0.0)
    head = head_of(learner)
    assert head.mean[1] > 20 * head.mean[0] > 0
    assert head.scale[1] > 20 * head.scale[0]
    torch.testing.assert_close(values(), before, rtol=1e-3, atol=1e-3)
    only_easy = columns_of(batch_of(), slice(0, None, 2))
    hard = head.mean[1].item(), head.scale[1].item()
    learner.step(only_easy, 0.0)
    assert (head.mean[1].item(), head.scale[1].item()) == hard


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("kind", ["popart", "hl_gauss", "observations"])
def test_learners_that_add_up_have_the_statistics_of_the_concatenated_batch(kind, reduction):
    settings = {"loss__reduction": reduction, "loss__max_kl": None}  # which `step` applies, not its halves
    together, apart = learner_of(kind, **settings), [learner_of(kind, **settings) for _ in range(2)]
    start = block_of(together)
    for seed in range(5):
        batch = batch_of(5, seed)
        batch.valid[:, 0] = False  # so the learners have different numbers of valid steps
        report = together.step(batch, RATE)
        parts = [columns_of(batch, slice(0, 2)), columns_of(batch, slice(2, None))]
        reports = [learner.gradient(part, lambda: None) for learner, part in zip(apart, parts, strict=True)]
        valid = [int(part.valid.sum()) for part in parts]
        weights = [count / sum(valid) if reduction == "mean" else 1.0 for count in valid]
        total = sum(weight * learner.gradients for weight, learner in zip(weights, apart, strict=True))
        for learner, own, part in zip(apart, reports, parts, strict=True):
            learner.gradients.copy_(total)
            learner.update(own, RATE, part)
            assert own["gradient_norm"] == pytest.approx(report["gradient_norm"], rel=1e-3), "of the weights alone"
    assert torch.equal(block_of(apart[0]), block_of(apart[1]))
    torch.testing.assert_close(block_of(apart[0]), block_of(together), rtol=1e-4, atol=1e-5)
    for name, untouched in buffers_of(learner_of(kind, **settings)).items():
        assert (buffers_of(together)[name] != untouched).all(), name
    assert not torch.equal(block_of(together), start)


@pytest.mark.parametrize("kind", ["popart", "hl_gauss", "observations"])
def test_a_batch_without_valid_steps_changes_no_statistics(kind):
    learner = learner_of(kind)
    learner.step(batch_of(), RATE)
    before = block_of(learner)
    batch = batch_of(seed=1)
    batch.valid[:] = False
    learner.step(batch, 0.0)
    assert torch.equal(block_of(learner), before)


@pytest.mark.parametrize("kind", ["popart", "hl_gauss", "observations"])
def test_statistics_reach_actors_and_checkpoints(kind):
    learner, restored = learner_of(kind), learner_of(kind, run__seed=2)
    for seed in range(3):
        learner.step(batch_of(seed=seed), RATE)
    actor = copy.deepcopy(restored.network)
    ParameterBlock(actor).load(torch.from_numpy(learner.parameters().block.copy()))
    restored.load_state(learner.state())
    for each in (actor, restored.network):
        for name, buffer in learner.network.named_buffers():
            assert torch.equal(dict(each.named_buffers())[name], buffer)
    for each in (learner, restored):
        each.step(batch_of(seed=9), RATE)
    assert torch.equal(block_of(learner), block_of(restored))


def test_observations_far_from_zero_are_learnt_from_as_if_they_were_not():
    learner = learner_of("observations")
    for seed in range(60):
        learner.step(batch_of(seed=seed, shift=50.0), 0.0)
    torch.testing.assert_close(entry_of(learner).mean, torch.full((3,), 50.0), atol=1.0, rtol=0)
    assert ((entry_of(learner).variance > 0.3) & (entry_of(learner).variance < 20.0)).all()


def test_all_early_batches_are_measured_and_later_a_share_of_every_period():
    assert all(is_measured(version) for version in range(ALWAYS_MEASURED))
    for period in range(1, 65):  # batches of one unroll, times passes: each of them has to be seen now and then
        for phase in {0, period // 3, period - 1}:
            versions = range(10_000 + phase, 10_000 + phase + 2_000 * period, period)
            share = sum(map(is_measured, versions)) / len(versions)
            assert share == pytest.approx(MEASURED_SHARE, rel=0.5)


@pytest.mark.parametrize("kind", ["popart", "observations"])
def test_only_measured_batches_change_statistics_and_all_change_weights(kind):
    learner, batch = learner_of(kind), batch_of()
    learner.step(batch, RATE)
    learner.version = next(version for version in range(1000, 2000) if not is_measured(version))
    weights, buffers = block_of(learner), buffers_of(learner)
    learner.step(batch, RATE)
    assert not torch.equal(block_of(learner), weights)
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in learner.network.named_buffers())
    learner.version = next(version for version in range(1000, 2000) if is_measured(version))
    learner.step(batch, RATE)
    assert not all(torch.equal(buffer, buffers[name]) for name, buffer in learner.network.named_buffers())
