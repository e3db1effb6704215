"""The interface between the learner and a loss."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from torch import Tensor

from pronk.config import ResolvedLoss
from pronk.config.named import find
from pronk.types import Unroll, Value


class LossTerms(NamedTuple):
    """A loss to minimise, and metrics of it."""

    total: Tensor  # []; mean or sum over the valid steps, as `loss.reduction` says: several learners rely on it
    metrics: dict[str, Tensor]
    """Each []. Names that end in `loss` are reduced as `total` is; all others are means over the valid steps. `entropy`
    is expected, in nats."""


class Loss(Protocol):
    """Made once as `Loss(config)`; `loss.name=module:Class` names one of your own."""

    entropy_cost: float
    """Weight of the entropy bonus in the next call. The learner sets it, as `loss.entropy_schedule` says."""

    barrier_cost: float
    """Weight of the log barrier, likewise; a loss that has no barrier need not have it."""

    target_log_prob: Tensor | None
    """[T, B] log pi_target(a_t|x_t) of the next call's batch. The learner sets it if `loss.target_updates` asks for a
    target network; a loss that does not use one need not have it."""

    def __call__(self, distribution: Any, value: Value, batch: Unroll) -> LossTerms:
        """Compute the loss of a batch.

        Args:
            distribution: of the current policy, over the batch's T steps (`networks.distributions.Distribution`).
            value: of the T+1 observations.
            batch: tensors on the learner's device.
        """
        ...


TABLE = {"impala": "pronk.losses.impala:ImpalaLoss", "appo": "pronk.losses.appo:AppoLoss"}


def make_loss(config: ResolvedLoss) -> Loss:
    """Make the configured loss."""
    return find("loss", config.name, TABLE)(config)
