import math
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pronk.losses.corrections import (
    CORRECTIONS,
    EPSILON,
    LARGEST_RATIO,
    LARGEST_TARGET,
    SCORES,
    bounded_sums,
    discounted_sums,
    one_step,
    uncorrected,
    upgoing,
    vtrace,
)

INVALID = -math.inf
bars = st.sampled_from([None, 0.3, 1.0, 2.5])
lambdas = st.sampled_from([0.0, 0.6, 1.0])


class Case(NamedTuple):
    log_rho: torch.Tensor
    discount: torch.Tensor
    reward: torch.Tensor
    value: torch.Tensor
    bootstrap: torch.Tensor


@st.composite
def cases(draw):
    length, columns = draw(st.integers(1, 9)), draw(st.integers(1, 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def often(share):
        return torch.rand(length, columns, generator=generator) < share

    return Case(
        log_rho=normal(length, columns).masked_fill(often(draw(st.sampled_from([0.0, 0.3]))), INVALID),
        discount=(0.5 + 0.5 * normal(length, columns).sigmoid()).masked_fill(often(0.2), 0.0),
        reward=normal(length, columns),
        value=3 * normal(length, columns),
        bootstrap=3 * normal(columns),
    )


def paper_targets(rho, c, pg_rho, discount, reward, value, bootstrap):
    """Equation (1) and section 4.2 of the paper for one column of plain floats:

    v_s = V(x_s) + sum_{t=s}^{T-1} (prod_{i=s}^{t-1} gamma_i c_i) delta_t V
    """
    length = len(reward)
    successor = [*value[1:], bootstrap]
    v = []
    for s in range(length):
        total = value[s]
        for t in range(s, length):
            product = math.prod(discount[i] * c[i] for i in range(s, t))
            total += product * rho[t] * (reward[t] + discount[t] * successor[t] - value[t])
        v.append(total)
    v_next = [*v[1:], bootstrap]
    return v, [pg_rho[s] * (reward[s] + discount[s] * v_next[s] - value[s]) for s in range(length)]


def assert_follows_paper(targets, case, rho_of, c_of, pg_rho_of):
    for b in range(case.reward.shape[1]):
        log_rho, discount, reward, value = (array[:, b].tolist() for array in case[:4])
        weights = [[weight(x) for x in log_rho] for weight in (rho_of, c_of, pg_rho_of)]
        v, advantage = paper_targets(*weights, discount, reward, value, case.bootstrap[b].item())
        assert targets.value[:, b].tolist() == pytest.approx(v, rel=1e-5, abs=1e-5)
        assert targets.advantage[:, b].tolist() == pytest.approx(advantage, rel=1e-5, abs=1e-5)


def clipped_at(bar):
    return lambda log_rho: min(math.inf if bar is None else bar, math.exp(log_rho))


def counts(log_rho):
    return float(log_rho != INVALID)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(cases(), bars, bars, bars, lambdas)
def test_vtrace_is_the_papers_sum(case, rho_bar, c_bar, pg_rho_bar, lambda_):
    targets = vtrace(*case, rho_bar=rho_bar, c_bar=c_bar, pg_rho_bar=pg_rho_bar, lambda_=lambda_)
    c = clipped_at(c_bar)
    assert_follows_paper(targets, case, clipped_at(rho_bar), lambda x: lambda_ * c(x), clipped_at(pg_rho_bar))


@settings(deadline=None, derandomize=True, max_examples=30)
@given(cases())
def test_vtrace_in_single_precision_clips_everything_at_one_unless_told(case):
    targets = vtrace(*(array.float() for array in case))
    assert targets.value.dtype == targets.advantage.dtype == torch.float32
    assert_follows_paper(targets, case, *[clipped_at(1.0)] * 3)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(cases(), bars, lambdas)
def test_one_step_weighs_only_the_policy_gradient(case, pg_rho_bar, lambda_):
    targets = one_step(*case, rho_bar=0.1, c_bar=0.1, pg_rho_bar=pg_rho_bar, lambda_=lambda_)
    assert_follows_paper(targets, case, counts, lambda x: lambda_ * counts(x), clipped_at(pg_rho_bar))


@settings(deadline=None, derandomize=True, max_examples=60)
@given(cases(), lambdas)
def test_none_and_epsilon_take_every_valid_step_as_on_policy(case, lambda_):
    assert CORRECTIONS["none"] is CORRECTIONS["epsilon"] is uncorrected
    targets = uncorrected(*case, rho_bar=0.1, c_bar=0.1, pg_rho_bar=0.1, lambda_=lambda_)
    assert_follows_paper(targets, case, counts, lambda x: lambda_ * counts(x), counts)


UNCLIPPED = {"rho_bar": None, "c_bar": None, "pg_rho_bar": None}


@settings(deadline=None, derandomize=True, max_examples=100)
@given(cases(), st.sampled_from([15.0, 50.0, 100.0, 1e4, 3e38]), st.integers(0, 8), st.booleans(), lambdas)
def test_a_ratio_that_overflows_float32_is_as_large_as_a_ratio_can_be(case, log_ratio, step, on_target, lambda_):
    """exp(100) is inf in float32, and inf times a TD error of zero was NaN."""
    step %= len(case.reward)
    case.log_rho[step] = log_ratio
    if on_target:
        case.reward[step] = case.discount[step] = case.value[step] = 0.0
    targets = vtrace(*(array.float() for array in case), **UNCLIPPED, lambda_=lambda_)

    def ratio(log_rho):
        return min(LARGEST_RATIO, math.exp(min(log_rho, 700.0)))

    for b in range(case.reward.shape[1]):
        log_rho, discount, reward, value = (array[:, b].tolist() for array in case[:4])
        rho = [ratio(x) for x in log_rho]
        expected = paper_targets(
            rho, [lambda_ * x for x in rho], rho, discount, reward, value, case.bootstrap[b].item()
        )
        largest = max(map(abs, [x for column in expected for x in column]))
        slack = {"rel": 1e-4, "abs": 1e-4 + 1e-6 * largest}  # a small number may be the difference of two large ones
        assert targets.value[:, b].tolist() == pytest.approx(expected[0], **slack)
        assert targets.advantage[:, b].tolist() == pytest.approx(expected[1], **slack)


@pytest.mark.parametrize("lambda_", [0.5, 1.0])
@pytest.mark.parametrize("bars", [UNCLIPPED, {"rho_bar": 100.0, "c_bar": 100.0}])
def test_a_trace_of_large_ratios_grows_to_a_limit_and_stays_a_number(bars, lambda_):
    log_rho, discount = torch.full((200, 1), 1e4), torch.full((200, 1), 0.99)
    discount[100], log_rho[50] = 0.0, INVALID
    targets = vtrace(
        log_rho, discount, torch.ones(200, 1), torch.zeros(200, 1), torch.zeros(1), **bars, lambda_=lambda_
    )
    for array in targets:
        assert array.isfinite().all()
        assert 0.9 * LARGEST_TARGET < array.max() <= LARGEST_TARGET
    assert targets.value[50] == targets.advantage[50] == 0
    assert targets.value[100] == min(100.0 if bars["rho_bar"] else LARGEST_RATIO, LARGEST_RATIO)


@pytest.mark.parametrize("name", CORRECTIONS)
def test_on_policy_targets_are_n_step_returns(name):
    torch.manual_seed(0)
    reward, value, bootstrap = torch.randn(6, 1), torch.randn(6, 1), torch.randn(1)
    discount = torch.tensor([0.9, 0.8, 0.0, 0.9, 0.7, 0.95]).unsqueeze(1)
    targets = CORRECTIONS[name](torch.zeros(6, 1), discount, reward, value, bootstrap)
    for s in range(6):
        n_step, weight = 0.0, 1.0
        for t in range(s, 6):
            n_step += weight * reward[t].item()
            weight *= discount[t].item()
        n_step += weight * bootstrap.item()
        assert targets.value[s].item() == pytest.approx(n_step, abs=1e-5)
        assert targets.advantage[s].item() == pytest.approx(n_step - value[s].item(), abs=1e-5)


@pytest.mark.parametrize("name", CORRECTIONS)
def test_an_invalid_step_has_no_error_and_cuts_the_trace(name):
    log_rho = torch.tensor([0.0, INVALID, 0.0]).unsqueeze(1)
    discount, reward = torch.full((3, 1), 0.5), torch.tensor([1.0, 100.0, 3.0]).unsqueeze(1)
    value, bootstrap = torch.tensor([10.0, 20.0, 30.0]).unsqueeze(1), torch.tensor([40.0])
    targets = CORRECTIONS[name](log_rho, discount, reward, value, bootstrap)
    assert targets.value.flatten().tolist() == [1 + 0.5 * 20, 20, 3 + 0.5 * 40]
    assert targets.advantage.flatten().tolist() == [11 - 10, 0, 23 - 30]


@pytest.mark.parametrize("name", CORRECTIONS)
def test_no_gradient_flows_through_the_targets(name):
    inputs = [torch.randn(4, 2, requires_grad=True) for _ in range(4)]
    targets = CORRECTIONS[name](*inputs, torch.randn(2, requires_grad=True))
    assert not targets.value.requires_grad
    assert not targets.advantage.requires_grad


def test_only_epsilon_changes_the_score_and_adds_to_the_probability():
    log_prob = torch.tensor([0.0, -3.0, -40.0])
    expected = [math.log(math.exp(x) + 1e-6) for x in log_prob.tolist()]
    assert list(SCORES) == ["epsilon"]
    assert EPSILON == 1e-6
    assert SCORES["epsilon"](log_prob).tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("reward", "bootstrap"), [((4, 1), (2,)), ((3, 2), (2,)), ((4, 2), (1,)), ((4, 2), (1, 2))])
def test_shapes_that_would_broadcast_are_refused(reward, bootstrap):
    array = torch.zeros(4, 2)
    with pytest.raises(AssertionError):
        vtrace(array, array, torch.zeros(reward), array, torch.zeros(bootstrap))


def slow_upgo(valid, discount, reward, value, bootstrap):
    """AlphaStar's upgoing return of each step of one column, by following the episode as long as it goes well."""
    length, successor = len(reward), [*value[1:], bootstrap]

    def upgoing_return(t):
        goes_on = t + 1 < length and valid[t + 1] and reward[t + 1] + discount[t + 1] * successor[t + 1] >= value[t + 1]
        return reward[t] + discount[t] * (upgoing_return(t + 1) if goes_on else successor[t])

    return [(upgoing_return(t) - value[t]) * valid[t] for t in range(length)]


@settings(deadline=None)
@given(cases())
def test_upgoing_advantages_are_those_of_following_the_episode(case):
    valid = case.log_rho != INVALID
    found = upgoing(valid, *case[1:])
    for b in range(case.reward.shape[1]):
        columns = (array[..., b].tolist() for array in (valid, *case[1:]))
        assert found[:, b].tolist() == pytest.approx(slow_upgo(*columns))


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 100])
def test_sums_of_doubled_reach_are_those_of_single_steps(length):
    torch.manual_seed(length)
    delta, decay = torch.randn(length, 3), torch.rand(length, 3) * (torch.rand(length, 3) < 0.9)
    torch.testing.assert_close(discounted_sums(delta, decay), bounded_sums(delta, decay))
