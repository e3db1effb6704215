"""V-trace (arXiv 1802.01561, section 4.1) and the three other corrections that the paper compares.

Pure functions of time-major tensors. A log ratio of -inf marks a step that is not valid: its rho and c are zero, so it
has no TD error and ends the trace, whatever the correction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

# Limits for settings that do not bound the importance weights. Anything near them means that the policies have nothing
# in common any more; what matters is that sums of their squares still fit into float32.
LARGEST_RATIO = 1e9
LARGEST_TARGET = 1e15


class Targets(NamedTuple):
    """What the loss pulls towards. No gradient flows through either."""

    value: Tensor  # [T, B]      v_t
    advantage: Tensor  # [T, B]  rho^pg_t (r_t + gamma_t v_{t+1} - V(x_t))


@torch.no_grad()
def vtrace(
    log_rho: Tensor,
    discount: Tensor,
    reward: Tensor,
    value: Tensor,
    bootstrap: Tensor,
    *,
    rho_bar: float | None = 1.0,
    c_bar: float | None = 1.0,
    pg_rho_bar: float | None = 1.0,
    lambda_: float = 1.0,
) -> Targets:
    """Compute the V-trace targets of an unroll.

    Args:
        log_rho: log pi(a_t|x_t) - log mu(a_t|x_t), [T, B].
        discount: gamma_t, zero where the episode terminated, [T, B].
        reward: r_t, [T, B].
        value: V(x_t), [T, B].
        bootstrap: V(x_T), [B].
        rho_bar: clips the importance weight of the TD error. None does not clip (below `LARGEST_RATIO`).
        c_bar: clips the importance weight of the trace, likewise.
        pg_rho_bar: clips the importance weight of the policy gradient, likewise.
        lambda_: multiplies c_t (remark 2 of the paper).
    """
    assert log_rho.shape == discount.shape == reward.shape == value.shape, "each must be [T, B]"
    assert bootstrap.shape == value.shape[1:], "bootstrap must be [B]"
    ratio = log_rho.exp()
    rho, c, pg_rho = (clipped(ratio, bar) for bar in (rho_bar, c_bar, pg_rho_bar))
    next_value = torch.cat([value[1:], bootstrap.unsqueeze(0)])
    delta = rho * (reward + discount * next_value - value)

    # v_t - V(x_t) = delta_t + gamma_t c_t (v_{t+1} - V(x_{t+1})), backwards from v_T = V(x_T)
    decay = discount * (lambda_ * c)
    may_overflow = None in (rho_bar, c_bar, pg_rho_bar) or float(c_bar or 0) > 1
    target = value + (bounded_sums(delta, decay) if may_overflow else discounted_sums(delta, decay))

    next_target = torch.cat([target[1:], bootstrap.unsqueeze(0)])
    advantage = pg_rho * (reward + discount * next_target - value)
    if may_overflow:
        advantage = advantage.clamp(-LARGEST_TARGET, LARGEST_TARGET)
    return Targets(target, advantage)


def discounted_sums(delta: Tensor, decay: Tensor) -> Tensor:
    """Return s_t = delta_t + decay_t s_{t+1} of [T, B] tensors, with s_T = 0.

    Each round doubles how far ahead every step has looked: after k rounds s_t has its first 2^k terms. That takes
    log2(T) rounds of whole tensors instead of T small steps, which cost a small network a tenth of its update.
    """
    sums, ahead = delta.clone(), 1
    decay = decay[:-1]  # from s_t to s_{t+ahead}
    while ahead < len(sums):
        sums[:-ahead] += decay * sums[ahead:]
        decay = decay[:-ahead] * decay[ahead:]
        ahead *= 2
    return sums


def bounded_sums(delta: Tensor, decay: Tensor) -> Tensor:
    """Return `discounted_sums`, kept within LARGEST_TARGET at every step.

    With c_t > 1 they grow as c^T, and an infinity would become NaN at the next decay of zero.
    """
    total, sums = torch.zeros_like(delta[0]), []
    for delta_t, decay_t in zip(reversed(delta.unbind()), reversed(decay.unbind()), strict=True):
        total = torch.addcmul(delta_t, decay_t, total).clamp(-LARGEST_TARGET, LARGEST_TARGET)
        sums.append(total)
    return torch.stack(sums[::-1])


def uncorrected(log_rho: Tensor, *inputs: Tensor, lambda_: float = 1.0, **bars: float | None) -> Targets:
    """Compute targets as if mu were pi. Takes what `vtrace` takes; the bars have no effect.

    For `none` and for `epsilon`, which differ in the score (see `SCORES`).
    """
    on_policy = torch.zeros_like(log_rho).masked_fill(log_rho == -torch.inf, -torch.inf)
    return vtrace(on_policy, *inputs, lambda_=lambda_)


@torch.no_grad()
def one_step(log_rho: Tensor, *inputs: Tensor, pg_rho_bar: float | None = 1.0, **settings: float) -> Targets:
    """One-step importance sampling: values as if on-policy, the policy gradient times the clipped ratio.

    Takes what `vtrace` takes; rho_bar and c_bar have no effect.
    """
    targets = uncorrected(log_rho, *inputs, **settings)
    return targets._replace(advantage=clipped(log_rho.exp(), pg_rho_bar) * targets.advantage)


@torch.no_grad()
def upgoing(valid: Tensor, discount: Tensor, reward: Tensor, value: Tensor, bootstrap: Tensor) -> Tensor:
    """Compute the advantages of UPGO (AlphaStar, 2019), whose returns follow only what went better than expected.

        G_t = r_t + gamma_t (G_{t+1}  if r_{t+1} + gamma_{t+1} V(x_{t+2}) >= V(x_{t+1})  else  V(x_{t+1}))

    `valid` is [T, B] bool; the others are as in `vtrace`. Returns G_t - V(x_t), [T, B], zero where a step is not valid.
    """
    next_value = torch.cat([value[1:], bootstrap.unsqueeze(0)])
    one_step_return = reward + discount * next_value
    better = valid & (one_step_return >= value)
    follows = bootstrap  # what is expected from x_{t+1} on
    returns = []
    for t in reversed(range(reward.shape[0])):
        went_up = reward[t] + discount[t] * follows
        returns.append(went_up)
        follows = torch.where(better[t], went_up, value[t])
    return (torch.stack(returns[::-1]) - value) * valid


def clipped(ratio: Tensor, bar: float | None) -> Tensor:
    """Return min(bar, ratio)."""
    return ratio.clamp(max=LARGEST_RATIO if bar is None else bar)


CORRECTIONS: dict[str, Callable[..., Targets]] = {
    "vtrace": vtrace,
    "one_step": one_step,
    "epsilon": uncorrected,
    "none": uncorrected,
}

EPSILON = 1e-6

# log pi(a) as the policy gradient sees it. `epsilon` keeps a vanishing pi(a) from making the gradient explode.
SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    "epsilon": lambda log_prob: (log_prob.exp() + EPSILON).log(),
}
