"""What replay adds to a loss, against slow loops over single steps."""

from __future__ import annotations

import math

import pytest
import torch
from test_impala import paper, random_batch

from pronk.config import ReplayConfig, ResolvedLoss
from pronk.losses import make_loss
from pronk.losses.replayed import ReplayLoss
from pronk.networks.distributions import Categorical
from pronk.networks.values import PlainValue

LENGTH, FRESH, COLUMNS = 5, 2, 5


def given(seed: int = 1):
    torch.manual_seed(seed)
    batch = random_batch(LENGTH, COLUMNS, torch.rand(LENGTH, COLUMNS) < 0.8)
    logits = torch.randn(LENGTH, COLUMNS, 3)
    return batch, logits.requires_grad_(), torch.randn(LENGTH + 1, COLUMNS).requires_grad_()


def wrapped(config: ResolvedLoss, fresh: int = FRESH, **replay: float) -> ReplayLoss:
    return ReplayLoss(make_loss(config), config, ReplayConfig(size=10, **replay), fresh)


def gradients(loss, batch, logits, value):
    terms = loss(Categorical(logits), PlainValue(value), batch)
    return terms, torch.autograd.grad(terms.total, [logits, value])


def config_of(name: str, reduction: str) -> ResolvedLoss:
    return paper(name=name, reduction=reduction, entropy_cost=0.02, discount=0.9)


EVERY = pytest.mark.parametrize(
    ("name", "reduction"), [(name, how) for name in ("impala", "appo") for how in ("mean", "sum")]
)


@EVERY
def test_without_further_settings_it_changes_nothing(name, reduction):
    batch, logits, value = given()
    config = config_of(name, reduction)
    plain, expected = gradients(make_loss(config), batch, logits, value)
    terms, found = gradients(wrapped(config), batch, logits, value)
    assert torch.equal(terms.total, plain.total)
    assert terms.metrics.keys() == plain.metrics.keys()
    assert all(map(torch.equal, found, expected))


def trusted_by_hand(batch, logits, bound):
    """The valid steps, but for those of replayed columns whose ratio is too far from 1."""
    log_pi = logits.detach().log_softmax(-1)
    valid = batch.valid.clone()
    for t in range(LENGTH):
        for column in range(FRESH, COLUMNS):
            ratio = math.exp(log_pi[t, column, batch.action[t, column]]) / math.exp(batch.log_prob[t, column])
            if not 1 / bound <= ratio <= bound:
                valid[t, column] = False
    return valid


@EVERY
def test_steps_outside_the_trust_region_are_as_if_invalid(name, reduction):
    batch, logits, value = given()
    config, bound = config_of(name, reduction), 1.5
    valid = trusted_by_hand(batch, logits, bound)
    assert 0 < valid[:, FRESH:].sum() < batch.valid[:, FRESH:].sum()
    assert torch.equal(valid[:, :FRESH], batch.valid[:, :FRESH])
    plain, expected = gradients(make_loss(config), batch._replace(valid=valid), logits, value)
    share = (valid.sum() / batch.valid.sum()).item()
    scale = share if reduction == "mean" else 1.0  # rejected steps stay in the denominator
    terms, found = gradients(wrapped(config, trust_region=bound), batch, logits, value)
    torch.testing.assert_close(terms.total, plain.total * scale)
    assert terms.metrics["trusted"].item() == pytest.approx(share)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other * scale)


def test_the_trace_ends_where_trust_does():
    """Rewards after a rejected step teach nothing to the steps before it."""
    batch, logits, value = given()
    batch = batch._replace(valid=torch.ones_like(batch.valid))
    log_pi = logits.detach().log_softmax(-1).gather(-1, batch.action.unsqueeze(-1)).squeeze(-1)
    batch = batch._replace(log_prob=log_pi.clone())  # on-policy,
    batch.log_prob[2, 3] -= 5.0  # but for one step
    loss = wrapped(config_of("impala", "sum"), trust_region=2.0)
    before = gradients(loss, batch, logits, value)[1]
    batch.reward[3:, 3] += 7.0
    batch.reward[2, 3] += 7.0
    after = gradients(loss, batch, logits, value)[1]
    for one, other in zip(before, after, strict=True):
        assert torch.equal(one[:3, 3], other[:3, 3])
        assert not torch.equal(one[3, 3], other[3, 3])


@EVERY
def test_cloning_against_a_loop(name, reduction):
    batch, logits, value = given()
    config, recorded = config_of(name, reduction), torch.randn(LENGTH + 1, COLUMNS - FRESH)
    plain = make_loss(config)(Categorical(logits), PlainValue(value), batch)
    policy, values = torch.zeros(()), torch.zeros(())
    for t in range(LENGTH):
        for column in range(FRESH, COLUMNS):
            if batch.valid[t, column]:
                policy = policy - logits[t, column].log_softmax(-1)[batch.action[t, column]]
                values = values + (value[t, column] - recorded[t, column - FRESH]) ** 2
    weight = 1 / batch.valid.sum() if reduction == "mean" else 1.0
    total = plain.total + weight * (0.3 * policy + 0.2 * values)
    expected = torch.autograd.grad(total, [logits, value])
    loss = wrapped(config, clone_policy_cost=0.3, clone_value_cost=0.2)
    loss.recorded = recorded
    terms, found = gradients(loss, batch, logits, value)
    torch.testing.assert_close(terms.total, total)
    torch.testing.assert_close(terms.metrics["clone_policy_loss"], policy * weight)
    torch.testing.assert_close(terms.metrics["clone_value_loss"], values * weight)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_the_gradient_of_cloning_is_that_of_the_kl_divergence():
    """Over all actions, weighted by mu: d/dlogits sum_a mu(a) -log pi(a) = pi - mu, that of KL(mu || pi)."""
    mu, logits = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.4, -1.0, 0.1], requires_grad=True)
    pi = Categorical(logits)
    sampled = sum(mu[a] * -pi.log_prob(torch.tensor(a)) for a in range(3))
    (found,) = torch.autograd.grad(sampled, logits)
    divergence = (mu * (mu.log() - logits.log_softmax(-1))).sum()
    (expected,) = torch.autograd.grad(divergence, logits)
    torch.testing.assert_close(found, expected)


def test_a_batch_without_replayed_columns_reports_the_same_metrics():
    batch, logits, value = given()
    settings = {"trust_region": 2.0, "clone_policy_cost": 0.1, "clone_value_cost": 0.1}
    config = config_of("impala", "mean")
    none, found = gradients(wrapped(config, fresh=COLUMNS, **settings), batch, logits, value)
    plain, expected = gradients(make_loss(config), batch, logits, value)
    assert none.metrics["clone_policy_loss"] == none.metrics["clone_value_loss"] == 0
    assert none.metrics["trusted"] == 1
    torch.testing.assert_close(none.total, plain.total)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_losses_of_two_learners_add_up_to_that_of_one(reduction):
    settings = {"trust_region": 1.5, "clone_policy_cost": 0.1, "clone_value_cost": 0.1}
    config = config_of("impala", reduction)
    halves = [given(seed) for seed in (1, 2)]
    recorded = [torch.randn(LENGTH + 1, COLUMNS - FRESH) for _ in halves]
    order = [0, 1, 5, 6, 2, 3, 4, 7, 8, 9]  # fresh columns of both, then replayed ones of both

    def joined(tensors, axis):
        return torch.cat(tensors, axis)[:, order] if axis else torch.cat(tensors)[order]

    names = [name for name in halves[0][0]._fields if name not in ("state", "info")]
    axes = {name: 0 if name in ("version", "task", "environment") else 1 for name in names}
    batch = halves[0][0]._replace(**{n: joined([getattr(half[0], n) for half in halves], axes[n]) for n in names})
    total, expected, valid = 0.0, 0.0, batch.valid.sum()
    whole = wrapped(config, fresh=2 * FRESH, **settings)
    whole.recorded = torch.cat(recorded, 1)
    logits, value = (joined([half[part] for half in halves], 1) for part in (1, 2))
    expected = whole(Categorical(logits), PlainValue(value), batch).total
    for half, then in zip(halves, recorded, strict=True):
        loss = wrapped(config, **settings)
        loss.recorded = then
        weight = half[0].valid.sum() / valid if reduction == "mean" else 1.0
        total = total + weight * loss(Categorical(half[1]), PlainValue(half[2]), half[0]).total
    torch.testing.assert_close(total, expected)


def test_what_is_seen_of_a_column_is_its_mean_td_error():
    batch, logits, value = given()
    loss = wrapped(paper(discount=0.9, reward_clip="abs_one", reward_scale=2.0), sampling="prioritised")
    gradients(loss, batch, logits, value)
    for column in range(COLUMNS):
        errors = []
        for t in range(LENGTH):
            if batch.valid[t, column]:
                reward = min(1.0, max(-1.0, 2.0 * batch.reward[t, column].item()))
                follows = 0.9 * batch.discount[t, column].item() * value[t + 1, column].item()
                errors.append(abs(reward + follows - value[t, column].item()))
        assert loss.seen.error[column].item() == pytest.approx(sum(errors) / max(1, len(errors)), rel=1e-5)
    assert torch.equal(loss.seen.value, value.detach())


@pytest.mark.parametrize("cost", ["entropy_cost", "barrier_cost"])
def test_the_costs_of_exploring_reach_the_loss_inside(cost):
    loss = wrapped(paper(**{cost: 0.5}))
    assert getattr(loss, cost) == 0.5
    setattr(loss, cost, 0.25)
    assert getattr(loss._loss, cost) == 0.25
