import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from pronk.config import NetworkConfig, ResolvedLoss
from pronk.envs.gymnasium_vector import adapt
from pronk.losses import make_loss
from pronk.losses.corrections import CORRECTIONS
from pronk.networks import make_network
from pronk.networks.distributions import Categorical
from pronk.networks.values import PlainValue
from pronk.types import ActionSpec, ArraySpec, EnvSpec, Unroll

SPEC = EnvSpec(ArraySpec((3,), "float32"), ActionSpec((), (3,)))
UNIFORM = math.log(1 / 3)


def paper(**settings):
    """The paper's loss; Pronk's own default is another."""
    return ResolvedLoss(**({"name": "impala", "lambda_": 1.0, "discount": 0.99, "entropy_cost": 0.01} | settings))


def batch_of(action, reward, *, log_prob=UNIFORM, discount=1.0, valid=True, observation=0.0):
    """A batch from lists [T] (one column) or arrays [T, B]; by default a uniform policy acted and no episode ended."""
    action = torch.as_tensor(action)
    shape = action.shape if action.dim() == 2 else (len(action), 1)
    longer = (shape[0] + 1, shape[1])

    def filled(values, shape=shape, dtype=torch.float32):
        values = torch.as_tensor(values, dtype=dtype)
        return values.reshape(shape).clone() if values.dim() else values.expand(shape).clone()

    return Unroll(
        observation=filled(observation, (*longer, 3)),
        first=filled(False, longer, torch.bool),
        action=filled(action, dtype=torch.int64),
        log_prob=filled(log_prob),
        reward=filled(reward),
        discount=filled(discount),
        valid=filled(valid, dtype=torch.bool),
        episode_return=filled(math.nan),
        episode_length=filled(0, dtype=torch.int32),
        state={},
        version=filled(0, shape[1:], torch.int64),
        task=filled(0, shape[1:], torch.int32),
        environment=filled(0, shape[1:], torch.int64),
    )


def random_batch(length, columns, valid):
    torch.manual_seed(2)
    return batch_of(
        torch.randint(3, (length, columns)),
        torch.randn(length, columns),
        log_prob=-torch.rand(length, columns) - 0.5,
        valid=valid,
        observation=torch.randn(length + 1, columns, 3),
    )


def loss_of(batch, *, logits=None, value=None, **config):
    length, columns = batch.reward.shape
    logits = torch.zeros(length, columns, 3) if logits is None else logits
    value = torch.zeros(length + 1, columns) if value is None else value
    return make_loss(paper(**config))(Categorical(logits), PlainValue(value), batch)


def value_targets(batch, values, **config):
    """v_t of a one-column batch, read off the gradient of the baseline: d/dV_t 1/2 (v_t - V_t)^2 = V_t - v_t."""
    value = torch.tensor(values).unsqueeze(1).requires_grad_()
    settings = {"reduction": "sum", "baseline_cost": 1.0, "entropy_cost": 0.0} | config
    loss_of(batch, value=value, **settings).total.backward()
    assert value.grad[-1] == 0, "the bootstrap is a target, not a prediction"
    return (value.detach() - value.grad)[:-1].flatten().tolist()


def softmax(logits):
    exponentials = [math.exp(x) for x in logits]
    return [x / sum(exponentials) for x in exponentials]


def test_policy_gradient_is_the_analytic_one():
    logits, actions, mu = [0.3, -0.2, 0.9], [2, 0], [0.5, 0.2]
    rewards, values, gamma = [1.0, -2.0], [0.5, 0.25, 2.0], 0.9
    pi = softmax(logits)
    rho = [min(1.0, pi[a] / m) for a, m in zip(actions, mu, strict=True)]
    delta = [rho[t] * (rewards[t] + gamma * values[t + 1] - values[t]) for t in range(2)]
    v = [values[0] + delta[0] + gamma * rho[0] * delta[1], values[1] + delta[1], values[2]]
    advantage = [rho[t] * (rewards[t] + gamma * v[t + 1] - values[t]) for t in range(2)]
    # the loss descends -advantage_t log pi(a_t), and d log pi(a) / d logit_j = [a = j] - pi(j)
    expected = [-sum(advantage[t] * ((actions[t] == j) - pi[j]) for t in range(2)) for j in range(3)]

    theta = torch.tensor(logits, requires_grad=True)
    batch = batch_of(actions, rewards, log_prob=[math.log(m) for m in mu])
    costs = {"reduction": "sum", "entropy_cost": 0.0, "discount": gamma}
    loss_of(batch, logits=theta.expand(2, 1, 3), value=torch.tensor(values).unsqueeze(1), **costs).total.backward()
    assert theta.grad.tolist() == pytest.approx(expected, abs=1e-6)


def test_entropy_gradient_is_the_analytic_one():
    logits = [0.3, -0.2, 0.9]
    pi = softmax(logits)
    entropy = -sum(p * math.log(p) for p in pi)
    expected = [0.7 * p * (math.log(p) + entropy) for p in pi]  # d(-H)/d logit_j = pi(j) (log pi(j) + H)
    theta = torch.tensor(logits, requires_grad=True)
    terms = loss_of(batch_of([1], [0.0]), logits=theta.expand(1, 1, 3), entropy_cost=0.7)
    terms.total.backward()
    assert terms.metrics["entropy"].item() == pytest.approx(entropy, abs=1e-6)
    assert theta.grad.tolist() == pytest.approx(expected, abs=1e-6)


def test_total_is_the_weighted_sum_of_the_terms():
    batch, value = random_batch(5, 2, torch.ones(5, 2)), torch.randn(6, 2)
    logits = torch.randn(5, 2, 3)
    terms = loss_of(batch, logits=logits, value=value, baseline_cost=0.3, entropy_cost=0.2)
    parts = terms.metrics
    expected = parts["policy_loss"] + 0.3 * parts["baseline_loss"] - 0.2 * parts["entropy"]
    torch.testing.assert_close(terms.total, expected)


def test_baseline_is_half_the_squared_distance():
    terms = loss_of(batch_of([0, 0], [1.0, 3.0]), value=torch.zeros(3, 1), discount=0.5)
    assert terms.metrics["baseline_loss"].item() == pytest.approx((0.5 * 2.5**2 + 0.5 * 3.0**2) / 2)


@pytest.mark.parametrize("correction", CORRECTIONS)
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_what_an_invalid_step_holds_changes_nothing(correction, reduction):
    torch.manual_seed(1)
    network = make_network(SPEC, NetworkConfig(hidden=[8]))
    loss = make_loss(paper(correction=correction, reduction=reduction, entropy_cost=0.1))

    def learnt_from(batch):
        network.zero_grad()
        output = network(batch.observation, batch.first, {})
        value = network.value(output.value, batch.task)
        total = loss(network.distribution(output.policy[:-1], batch.observation[:-1]), value, batch).total
        total.backward()
        return [total.detach(), *(weight.grad.clone() for weight in network.parameters())]

    # Environment 0 terminates at step 1 and resets at step 2; environment 1 is always at play.
    batch = random_batch(5, 2, [[1, 1], [1, 1], [0, 1], [1, 1], [1, 1]])
    batch.discount[1, 0] = 0.0
    before = learnt_from(batch)
    batch.observation[2, 0] += 5.0
    batch.action[2, 0] = (batch.action[2, 0] + 1) % 3
    batch.reward[2, 0] = 1000.0
    batch.log_prob[2, 0] = -30.0
    batch.discount[2, 0] = 0.0
    for old, new in zip(before, learnt_from(batch), strict=True):
        assert torch.equal(old, new)
    batch.reward[3, 0] += 1.0
    assert not torch.equal(before[0], learnt_from(batch)[0])


def test_a_batch_without_a_valid_step_teaches_nothing():
    batch = random_batch(3, 2, torch.zeros(3, 2))
    logits, value = torch.randn(3, 2, 3, requires_grad=True), torch.randn(4, 2, requires_grad=True)
    terms = loss_of(batch, logits=logits, value=value)
    terms.total.backward()
    assert terms.total == 0
    assert not logits.grad.any()
    assert not value.grad.any()
    assert terms.metrics["entropy"] == 0


def test_sum_is_mean_times_the_number_of_valid_steps():
    valid = torch.tensor([[1, 0], [1, 1], [0, 1], [1, 1]])
    batch, logits, value = random_batch(4, 2, valid), torch.randn(4, 2, 3), torch.randn(5, 2)
    total, mean = (loss_of(batch, logits=logits, value=value, reduction=name) for name in ("sum", "mean"))
    torch.testing.assert_close(total.total, 6 * mean.total)
    for name in ("policy_loss", "baseline_loss"):
        torch.testing.assert_close(total.metrics[name], 6 * mean.metrics[name])


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_reported_entropy_is_the_mean_over_valid_steps(reduction):
    logits = torch.randn(4, 2, 3)
    valid = torch.tensor([[1, 0], [1, 1], [0, 1], [1, 1]], dtype=torch.bool)
    entropies = [-sum(p * math.log(p) for p in softmax(row)) for row in logits[valid].tolist()]
    terms = loss_of(random_batch(4, 2, valid), logits=logits, reduction=reduction)
    assert terms.metrics["entropy"].item() == pytest.approx(sum(entropies) / 6, abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "learnt"),
    [
        ({}, [-4.0, -0.1, 0.2, 3.0]),
        ({"reward_scale": 0.5}, [-2.0, -0.05, 0.1, 1.5]),
        ({"reward_clip": "abs_one"}, [-1.0, -0.1, 0.2, 1.0]),
        ({"reward_clip": "abs_one", "reward_scale": 0.3}, [-1.0, -0.03, 0.06, 0.9]),
        (
            {"reward_clip": "soft_asymmetric"},
            [0.3 * math.tanh(-4.0), 0.3 * math.tanh(-0.1), 5 * math.tanh(0.2), 5 * math.tanh(3.0)],
        ),
    ],
)
def test_rewards_are_scaled_then_clipped(settings, learnt):
    batch = batch_of([0] * 4, [-4.0, -0.1, 0.2, 3.0])
    assert value_targets(batch, [0.0] * 5, discount=0.0, **settings) == pytest.approx(learnt, abs=1e-6)


def test_epsilon_tames_the_gradient_of_a_vanishing_action():
    logits = torch.tensor([0.0, -20.0, 1.0], requires_grad=True)
    settings = {"correction": "epsilon", "entropy_cost": 0.0, "discount": 0.0}
    terms = loss_of(batch_of([1], [2.0]), logits=logits.expand(1, 1, 3), **settings)
    terms.total.backward()
    pi = softmax([0.0, -20.0, 1.0])
    assert terms.metrics["policy_loss"].item() == pytest.approx(-2.0 * math.log(pi[1] + 1e-6), rel=1e-5)
    damped = pi[1] / (pi[1] + 1e-6)
    expected = [-2.0 * damped * ((j == 1) - pi[j]) for j in range(3)]
    assert logits.grad.tolist() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("correction", "weight"), [("vtrace", 0.25), ("one_step", 0.25), ("none", 1.0)])
def test_importance_weighs_the_policy_gradient_by_pi_over_mu(correction, weight):
    batch = batch_of([0], [2.0], log_prob=[math.log(4 / 3)])  # pi = 1/3, so pi / mu = 1/4
    terms = loss_of(batch, correction=correction, pg_rho_bar=None)
    assert terms.metrics["policy_loss"].item() == pytest.approx(-weight * 2.0 * UNIFORM, rel=1e-5)


def test_bars_and_lambda_reach_the_correction():
    log_mu = UNIFORM - math.log(4)  # pi / mu = 4
    batch = batch_of([0, 0], [1.0, 1.0], log_prob=[log_mu, log_mu])
    settings = {"rho_bar": 3.0, "c_bar": 2.0, "lambda_": 0.5, "discount": 0.5}
    # delta = 3, 3; the trace from step 0 to 1 is gamma lambda c = 0.5 x 0.5 x 2
    assert value_targets(batch, [0.0] * 3, **settings) == pytest.approx([3 + 0.5 * 3, 3.0], rel=1e-5)
    policy = loss_of(batch, pg_rho_bar=1.5, **settings).metrics["policy_loss"].item()
    advantages = 1.5 * (1 + 0.5 * 3) + 1.5 * 1
    assert policy == pytest.approx(-advantages * UNIFORM / 2, rel=1e-5)


class Counter(gym.Env):
    """Observes and earns the number of the step: 1, then 2, where it ends."""

    observation_space, action_space = gym.spaces.Box(0, 2, (), np.float32), gym.spaces.Discrete(3)

    def __init__(self, terminates):
        self._terminates = terminates

    def reset(self, *, seed=None, options=None):
        self._count = 0
        return np.float32(0), {}

    def step(self, action):
        self._count += 1
        ended = self._count == 2
        return np.float32(self._count), self._count, ended and self._terminates, ended and not self._terminates, {}


@pytest.mark.parametrize(
    ("mode", "terminates", "observed", "targets"),
    [
        # o_2 is the episode's last observation, and step 2 only resets
        (AutoresetMode.NEXT_STEP, False, [0, 1, 2, 0, 1], [1 + 0.5 * 17, 2 + 0.5 * 30, None, 1 + 0.5 * 20]),
        (AutoresetMode.NEXT_STEP, True, [0, 1, 2, 0, 1], [1 + 0.5 * 2, 2, None, 1 + 0.5 * 20]),
        # the same after a truncation; after a termination, o_2 opens the next episode
        (AutoresetMode.SAME_STEP, False, [0, 1, 2, 0, 1], [1 + 0.5 * 17, 2 + 0.5 * 30, None, 1 + 0.5 * 20]),
        (AutoresetMode.SAME_STEP, True, [0, 1, 0, 1, 0], [1 + 0.5 * 2, 2, 1 + 0.5 * 2, 2]),
    ],
)
def test_truncated_episodes_bootstrap_and_terminated_ones_do_not(mode, terminates, observed, targets):
    env = adapt(gym.vector.SyncVectorEnv([lambda: Counter(terminates)], autoreset_mode=mode))
    answers = [env.reset([0]), *(env.step(np.zeros(1, np.int64)) for _ in range(4))]
    steps = answers[1:]
    observations = [float(answer.observation[0]) for answer in answers]
    assert observations == observed
    batch = batch_of(
        [0] * 4,
        [float(step.reward[0]) for step in steps],
        discount=[float(step.discount[0]) for step in steps],
        valid=[bool(step.valid[0]) for step in steps],
    )
    values = [10 + 10 * observation for observation in observations]
    expected = [values[t] if target is None else target for t, target in enumerate(targets)]
    assert value_targets(batch, values, discount=0.5) == pytest.approx(expected)
