"""Networks that keep statistics of the data: toys of PopArt and of observation normalisation, through the real learner.

They show that both can be written as a network (or a part of one) and nothing else.
"""

import copy

import pytest
import torch
from torch import nn

from pronk.batcher import PER_ENVIRONMENT
from pronk.config import Config, resolve
from pronk.layout import UnrollLayout
from pronk.learner import Learner
from pronk.losses import make_loss
from pronk.losses.corrections import vtrace
from pronk.networks import make_network
from pronk.networks.actor_critic import ActorCritic
from pronk.networks.heads import in_float32
from pronk.networks.values import PlainValue
from pronk.parameters import ParameterBlock, Statistics
from pronk.types import ActionSpec, ArraySpec, EnvSpec, map_unroll, unroll_specs

T, B, RATE, STEP = 6, 4, 0.01, 0.1
SPEC = EnvSpec(ArraySpec((3,), "float32"), ActionSpec((), (3,)), tasks=("easy", "hard"))


class ToyPopArt(Statistics):
    """A value head with one output, one mean and one scale per task. Outputs stay the same when the scale changes."""

    def __init__(self, inputs: int, tasks: int) -> None:
        super().__init__(3 * tasks)
        self.linear = nn.Linear(inputs, tasks)
        self.register_buffer("mean", torch.zeros(tasks))
        self.register_buffer("scale", torch.ones(tasks))

    def forward(self, features):
        return in_float32(self.linear, features)

    def value(self, raw, task):
        return ToyValue(self, raw, task.long())

    def update(self):
        count, distance, square = self.sums.view(3, -1)
        seen, count = count > 0, count.clamp(min=1e-9)
        mean = self.mean + STEP * distance / count
        variance = (1 - STEP) * self.scale.square() + STEP * square / count - (mean - self.mean).square()
        mean, scale = torch.where(seen, mean, self.mean), torch.where(seen, variance.sqrt(), self.scale)
        self.linear.weight.mul_((self.scale / scale).unsqueeze(-1))
        self.linear.bias.copy_((self.scale * self.linear.bias + self.mean - mean) / scale)
        self.mean.copy_(mean)
        self.scale.copy_(scale)


class ToyValue:
    """See `types.Value`."""

    def __init__(self, head, raw, task):
        self._head, self._task = head, task
        self._mean, self._scale = head.mean[task], head.scale[task]
        self._raw = raw.gather(-1, task.expand(raw.shape[:2]).unsqueeze(-1)).squeeze(-1)
        self.estimate = self._mean + self._scale * self._raw

    def error(self, target):
        return 0.5 * ((target - self._mean) / self._scale - self._raw[:-1]).square()

    def scaled(self, advantage):
        return advantage / self._scale

    def observe(self, target, valid):
        distance = (target - self._mean) * valid
        for sums, amount in zip(self._head.sums.view(3, -1), (valid.float(), distance, distance.square()), strict=True):
            sums.index_add_(0, self._task, amount.sum(0))


class PopArtNetwork(ActorCritic):
    def __init__(self, spec, config):
        super().__init__(spec, config)
        self._value_head = ToyPopArt(self._core.size, len(spec.tasks))

    @property
    def head(self):
        return self._value_head


class ObservationStatistics(Statistics):
    def __init__(self, size):
        super().__init__(1 + 2 * size)
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("variance", torch.ones(size))

    def update(self):
        count, (distance, square) = self.sums[0], self.sums[1:].view(2, -1)
        if count == 0:
            return
        self.variance.lerp_(square / count - (distance / count).square(), STEP)
        self.mean.add_(STEP * distance / count)


class NormalisingNetwork(ActorCritic):
    """Sees observations with a running mean of 0 and variance of 1."""

    def __init__(self, spec, config):
        super().__init__(spec, config)
        self.seen = ObservationStatistics(spec.observation.size)

    def forward(self, observation, first, state):
        return super().forward((observation - self.seen.mean) / self.seen.variance.sqrt(), first, state)

    def observe(self, batch):
        distance = (batch.observation[:-1] - self.seen.mean)[batch.valid]
        self.seen.sums.add_(torch.cat([batch.valid.sum()[None], distance.sum(0), distance.square().sum(0)]))


TOYS = {"popart": f"{__name__}:PopArtNetwork", "observations": f"{__name__}:NormalisingNetwork"}


def learner_of(network="popart", **changes):
    small = {"network.hidden": [8], "network.name": TOYS.get(network, network), "optimiser.max_gradient_norm": 0.5}
    config = Config().replace(small | {name.replace("__", "."): value for name, value in changes.items()})
    return Learner(resolve(config), SPEC, torch.device("cpu"))


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
            if name != "state"
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
    config = Config()
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
    plain = learner_of("actor_critic")
    assert plain.gradients.numel() == ParameterBlock(copy.deepcopy(plain.network)).weights.numel()


def test_rewards_in_other_units_are_learnt_alike():
    one, thousand = learner_of(optimiser__learning_rate=RATE), learner_of()
    thousand.network.head.scale.fill_(1000.0)
    for seed in range(10):
        reports = [
            learner.step(batch_of(seed=seed, scale=scale), RATE) for learner, scale in ((one, 1), (thousand, 1000))
        ]
        assert reports[1] == pytest.approx(reports[0], rel=1e-3, abs=1e-4)
    for (name, ours), (_, theirs) in zip(
        one.network.named_parameters(), thousand.network.named_parameters(), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4, msg=name)
    torch.testing.assert_close(1000 * one.network.head.mean, thousand.network.head.mean, rtol=1e-3, atol=0.1)
    torch.testing.assert_close(1000 * one.network.head.scale, thousand.network.head.scale, rtol=1e-3, atol=0.1)
    assert (one.network.head.scale != 1).all()


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
    head = learner.network.head
    assert head.mean[1] > 20 * head.mean[0] > 0
    assert head.scale[1] > 20 * head.scale[0]
    torch.testing.assert_close(values(), before, rtol=1e-3, atol=1e-3)
    only_easy = columns_of(batch_of(), slice(0, None, 2))
    hard = head.mean[1].item(), head.scale[1].item()
    learner.step(only_easy, 0.0)
    assert (head.mean[1].item(), head.scale[1].item()) == hard


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("network", TOYS)
def test_learners_that_add_up_have_the_statistics_of_the_concatenated_batch(network, reduction):
    settings = {"loss__reduction": reduction}
    together, apart = learner_of(network, **settings), [learner_of(network, **settings) for _ in range(2)]
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
    buffers = torch.cat([buffer.flatten() for buffer in buffers_of(together).values()])
    assert (buffers != torch.cat([torch.zeros(len(buffers) // 2), torch.ones(len(buffers) // 2)])).all()
    assert not torch.equal(block_of(together), start)


@pytest.mark.parametrize("network", TOYS)
def test_a_batch_without_valid_steps_changes_no_statistics(network):
    learner = learner_of(network)
    learner.step(batch_of(), RATE)
    before = block_of(learner)
    batch = batch_of(seed=1)
    batch.valid[:] = False
    learner.step(batch, 0.0)
    assert torch.equal(block_of(learner), before)


@pytest.mark.parametrize("network", TOYS)
def test_statistics_reach_actors_and_checkpoints(network):
    learner, restored = learner_of(network), learner_of(network, run__seed=2)
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
    torch.testing.assert_close(learner.network.seen.mean, torch.full((3,), 50.0), atol=1.0, rtol=0)
    assert ((learner.network.seen.variance > 0.3) & (learner.network.seen.variance < 20.0)).all()
