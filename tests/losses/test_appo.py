"""The clipped surrogate, against PPO written out step by step."""

import math

import pytest
import torch

from pronk.config import ResolvedLoss
from pronk.layout import UnrollLayout
from pronk.losses import make_loss
from pronk.losses.corrections import upgoing
from pronk.networks.distributions import Categorical
from pronk.networks.values import PlainValue
from pronk.types import ActionSpec, ArraySpec, EnvSpec, map_unroll, unroll_specs

T, B, CHOICES = 7, 3, 4
SPEC = EnvSpec(ArraySpec((2,), "float32"), ActionSpec((), (CHOICES,)))


def batch_of(logits, seed=0, off_policy=0.0):
    """A batch whose acting policy was the given one, moved by some noise."""
    generator = torch.Generator().manual_seed(seed)
    batch = map_unroll(torch.from_numpy, UnrollLayout(unroll_specs(SPEC, {}, T, B)).allocate())
    batch.action.random_(0, CHOICES, generator=generator)
    batch.reward.normal_(generator=generator)
    batch.discount.copy_(torch.rand(T, B, generator=generator) < 0.8)
    batch.valid.fill_(True)
    acted = logits + off_policy * torch.randn(logits.shape, generator=generator)
    batch.log_prob.copy_(Categorical(acted).log_prob(batch.action).detach())
    return batch


def inputs(seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(T, B, CHOICES, generator=generator).requires_grad_()
    values = torch.randn(T + 1, B, generator=generator).requires_grad_()
    return logits, values


def slow_ppo(logits, values, batch, config):
    """PPO with GAE, one step of one column at a time. On-policy V-trace is GAE's lambda-return."""
    log_prob = Categorical(logits).log_prob(batch.action)
    policy = baseline = torch.zeros(())
    for b in range(B):
        advantage = 0.0
        for t in reversed(range(T)):
            gamma = config.discount * float(batch.discount[t, b])
            delta = float(batch.reward[t, b]) + gamma * float(values[t + 1, b].detach()) - float(values[t, b].detach())
            advantage = delta + gamma * config.lambda_ * advantage
            ratio = (log_prob[t, b] - batch.log_prob[t, b]).exp()
            clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
            policy = policy - torch.minimum(ratio * advantage, clipped * advantage)
            baseline = baseline + 0.5 * (float(values[t, b].detach()) + advantage - values[t, b]).square()
    entropy = Categorical(logits).entropy().sum()
    return (policy + config.baseline_cost * baseline - config.entropy_cost * entropy) / (T * B)


def test_on_policy_it_is_ppo_with_generalised_advantages():
    config = ResolvedLoss(discount=0.99, name="appo", lambda_=0.9, entropy_cost=0.01)
    logits, values = inputs()
    batch = batch_of(logits.detach())
    ours = make_loss(config)(Categorical(logits), PlainValue(values), batch).total
    theirs = slow_ppo(logits, values, batch, config)
    torch.testing.assert_close(ours, theirs)
    for left, right in zip(
        torch.autograd.grad(ours, [logits, values], retain_graph=True),
        torch.autograd.grad(theirs, [logits, values]),
        strict=True,
    ):
        torch.testing.assert_close(left, right)


def test_a_step_that_has_moved_too_far_stops_teaching_the_policy():
    config = ResolvedLoss(discount=0.99, name="appo", entropy_cost=0.0)
    logits, values = inputs()
    batch = batch_of(logits.detach())
    batch.log_prob.sub_(math.log(2.0))  # every ratio is 2
    batch.reward.fill_(10.0)  # every advantage is positive
    terms = make_loss(config)(Categorical(logits), PlainValue(values), batch)
    terms.total.backward()
    assert terms.metrics["clipped"] == 1.0
    assert terms.metrics["kl"].item() == pytest.approx(1.0 - math.log(2.0), rel=1e-4)  # r - 1 - log r
    assert not logits.grad.any()
    assert values.grad.any()


def test_a_step_that_moved_the_wrong_way_is_still_pulled_back():
    config = ResolvedLoss(discount=0.99, name="appo", entropy_cost=0.0)
    logits, values = inputs()
    batch = batch_of(logits.detach())
    batch.log_prob.sub_(math.log(2.0))
    batch.reward.fill_(-10.0)  # it became likelier though it is bad
    make_loss(config)(Categorical(logits), PlainValue(values), batch).total.backward()
    assert logits.grad.any()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_what_an_invalid_step_holds_changes_nothing(reduction):
    config = ResolvedLoss(discount=0.99, name="appo", reduction=reduction, entropy_cost=0.01)

    def gradients(batch):
        logits, values = inputs()
        make_loss(config)(Categorical(logits), PlainValue(values), batch).total.backward()
        return logits.grad, values.grad

    batch = batch_of(inputs()[0].detach(), off_policy=0.3)
    batch.valid[2, 1] = False
    before = gradients(batch)
    batch.reward[2, 1], batch.log_prob[2, 1], batch.discount[2, 1] = 1e6, -60.0, 0.0
    for left, right in zip(before, gradients(batch), strict=True):
        assert torch.equal(left, right)


def test_an_overflowing_ratio_stays_finite():
    logits, values = inputs()
    batch = batch_of(logits.detach())
    batch.log_prob.fill_(-500.0)
    terms = make_loss(ResolvedLoss(discount=0.99, name="appo", entropy_cost=0.01))(
        Categorical(logits), PlainValue(values), batch
    )
    terms.total.backward()
    assert terms.total.isfinite()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("name", ["appo", "impala"])
def test_upgo_adds_its_own_advantages_to_the_policy_gradient(name):
    logits, values = inputs()
    batch = batch_of(logits.detach())

    def policy_loss(cost):
        loss = make_loss(ResolvedLoss(discount=0.99, name=name, upgo_cost=cost, entropy_cost=0.01))
        return loss(Categorical(logits), PlainValue(values), batch).metrics["policy_loss"].detach()

    upgo = upgoing(batch.valid, 0.99 * batch.discount, batch.reward, values[:-1].detach(), values[-1].detach())
    score = Categorical(logits).log_prob(batch.action) if name == "impala" else torch.ones(T, B)  # on-policy: ratio 1
    added = -0.5 * float((score.detach() * upgo).mean())
    assert float(policy_loss(0.5) - policy_loss(0.0)) == pytest.approx(added, rel=1e-4)


def slow_impact(logits, values, batch, target_log_prob, config):
    """IMPACT's loss, one step of one column at a time."""
    log_prob = Categorical(logits).log_prob(batch.action)
    policy = baseline = torch.zeros(())
    for b in range(B):
        v = [float(values[t, b].detach()) for t in range(T + 1)]
        correction, next_target = 0.0, v[T]
        for t in reversed(range(T)):
            rho = min(1.0, math.exp(float(target_log_prob[t, b] - batch.log_prob[t, b])))
            gamma = config.discount * float(batch.discount[t, b])
            delta = rho * (float(batch.reward[t, b]) + gamma * v[t + 1] - v[t])
            correction = delta + gamma * config.lambda_ * rho * correction
            mixed = config.lambda_ * next_target + (1 - config.lambda_) * v[t + 1]
            advantage = float(batch.reward[t, b]) + gamma * mixed - v[t]
            acting = min(2.0, math.exp(float(batch.log_prob[t, b] - target_log_prob[t, b])))
            ratio = acting * (log_prob[t, b] - batch.log_prob[t, b]).exp()
            clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
            policy = policy - torch.minimum(ratio * advantage, clipped * advantage)
            baseline = baseline + 0.5 * (v[t] + correction - values[t, b]).square()
            next_target = v[t] + correction
    entropy = Categorical(logits).entropy().sum()
    return (policy + config.baseline_cost * baseline - config.entropy_cost * entropy) / (T * B)


def test_with_a_target_network_it_is_impact():
    config = ResolvedLoss(discount=0.99, name="appo", lambda_=0.9, target_updates=10, entropy_cost=0.01)
    logits, values = inputs()
    batch = batch_of(logits.detach(), off_policy=1.0)
    target = Categorical(logits.detach() + 0.5 * torch.randn(logits.shape, generator=torch.Generator().manual_seed(5)))
    loss = make_loss(config)
    loss.target_log_prob = target.log_prob(batch.action)
    ours = loss(Categorical(logits), PlainValue(values), batch).total
    theirs = slow_impact(logits, values, batch, loss.target_log_prob, config)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(
        torch.autograd.grad(ours, [logits, values]), torch.autograd.grad(theirs, [logits, values])
    )


def test_the_papers_loss_has_no_target_network():
    with pytest.raises(ValueError, match="target_updates needs name=appo"):
        ResolvedLoss(discount=0.99, name="impala", target_updates=10, entropy_cost=0.01)


@pytest.mark.parametrize("correction", ["one_step", "epsilon"])
def test_corrections_that_would_change_nothing_are_refused(correction):
    with pytest.raises(ValueError, match=f"correction={correction} needs name=impala"):
        ResolvedLoss(discount=0.99, name="appo", correction=correction, entropy_cost=0.01)
