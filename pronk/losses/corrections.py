"""V-trace (arXiv 1802.01561, section 4.1) and the three corrections that the paper compares it with.

Pure functions of time-major tensors. A log ratio of -inf marks a step that does not count: its rho and c are zero, so
it has no TD error and stops the trace, whatever the correction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Targets(NamedTuple):
    """What the loss pulls towards. No gradient flows through either."""

    value: Tensor  # [T, B]      v_t
    advantage: Tensor  # [T, B]  rho^pg_t (r_t + gamma_t v_{t+1} - V(x_t))


class Correction(Protocol):
    """The signature that all four share."""

    def __call__(
        self,
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
        """log pi/mu, gamma_t, r_t, V(x_t), each [T, B]; V(x_T) [B]."""
        ...


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
    """Importance weights clipped at rho_bar in the TD error, at c_bar in the trace. `None` does not clip."""
    with torch.no_grad():
        ratio = log_rho.exp()
        weights = clipped(ratio, rho_bar), lambda_ * clipped(ratio, c_bar), clipped(ratio, pg_rho_bar)
        return trace(*weights, discount, reward, value, bootstrap)


def one_step(
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
    """One-step importance sampling: values as if on-policy, the policy gradient weighted by the clipped ratio."""
    with torch.no_grad():
        counts = (log_rho > -torch.inf).to(value.dtype)
        return trace(counts, lambda_ * counts, clipped(log_rho.exp(), pg_rho_bar), discount, reward, value, bootstrap)


def uncorrected(
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
    """As if on-policy. Targets of `none` and of `epsilon`, which differ in the score (see `SCORES`)."""
    with torch.no_grad():
        counts = (log_rho > -torch.inf).to(value.dtype)
        return trace(counts, lambda_ * counts, counts, discount, reward, value, bootstrap)


def trace(
    rho: Tensor, c: Tensor, pg_rho: Tensor, discount: Tensor, reward: Tensor, value: Tensor, bootstrap: Tensor
) -> Targets:
    """The recursion, backwards: v_t - V_t = delta_t + gamma_t c_t (v_{t+1} - V_{t+1}), zero beyond the unroll."""
    assert rho.shape == discount.shape == reward.shape == value.shape, "all of [T, B]"
    assert bootstrap.shape == value.shape[1:], "bootstrap is [B]"
    next_value = torch.cat([value[1:], bootstrap.unsqueeze(0)])
    delta = rho * (reward + discount * next_value - value)
    decay = discount * c
    excess = torch.zeros_like(bootstrap)  # v_{t+1} - V(x_{t+1})
    excesses = []
    for delta_t, decay_t in zip(reversed(delta.unbind()), reversed(decay.unbind()), strict=True):
        excess = torch.addcmul(delta_t, decay_t, excess)
        excesses.append(excess)
    target = value + torch.stack(excesses[::-1])
    next_target = torch.cat([target[1:], bootstrap.unsqueeze(0)])
    return Targets(target, pg_rho * (reward + discount * next_target - value))


def clipped(ratio: Tensor, bar: float | None) -> Tensor:
    """min(bar, ratio)."""
    return ratio if bar is None else ratio.clamp(max=bar)


CORRECTIONS: dict[str, Correction] = {
    "vtrace": vtrace,
    "one_step": one_step,
    "epsilon": uncorrected,
    "none": uncorrected,
}

EPSILON = 1e-6

# log pi(a) as the policy gradient sees it. `epsilon` keeps a vanishing pi(a) from blowing the gradient up.
SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    "epsilon": lambda log_prob: (log_prob.exp() + EPSILON).log(),
}
