"""What keeps a policy exploring: the entropy bonus of the paper, and a log barrier for choices.

                    bonus                                        its gradient for the logit of option a
    entropy         H(pi) = - sum_a pi(a) log pi(a)              - pi(a) (log pi(a) + H)
    log barrier     - KL(uniform || pi) = log n + 1/n sum_a log pi(a)        1/n - pi(a)

The policy gradient of an option and the entropy's both vanish with its probability. So an option that was costly at
first, such as picking up a passenger where there is none, can become so rare that the policy never learns when it
pays. The barrier's gradient does not vanish: where an option has the advantage -A, it holds its probability near
barrier_cost / (n A), rare enough to cost little (Agarwal et al. 2020, arXiv 1908.00261, section 5).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor


class Exploration(NamedTuple):
    """Sums over the valid steps of a batch."""

    bonus: Tensor  # []  to maximise
    entropy: Tensor  # []  in nats


def exploration(distribution: Any, counts: Tensor, entropy_cost: float, barrier_cost: float) -> Exploration:
    """Return the bonus of a policy; `counts` [T, B] is 1 for valid steps, else 0."""
    entropy = (distribution.entropy() * counts).sum()
    bonus = entropy_cost * entropy
    if barrier_cost:
        bonus = bonus - barrier_cost * (distribution.kl_from_uniform() * counts).sum()
    return Exploration(bonus, entropy)
