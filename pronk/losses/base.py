"""What every loss looks like to the learner."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from torch import Tensor

from pronk.config import LossConfig
from pronk.config.named import find
from pronk.types import Unroll


class LossTerms(NamedTuple):
    """A loss to descend, and the parts of it worth watching."""

    total: Tensor  # []; over the valid steps, a mean or a sum as `loss.reduction` says: several learners rely on it
    metrics: dict[str, Tensor]  # each []; `entropy` is expected, the mean over valid steps in nats; so is all the rest
    # but for names that end in `loss`, which go by `loss.reduction` too


class Loss(Protocol):
    """Made once as `Loss(config)`; `loss.name=module:Class` names one of your own."""

    def __call__(self, distribution: Any, value: Tensor, batch: Unroll) -> LossTerms:
        """The current policy's distribution over the batch's T steps, its values [T+1, B], and the batch itself."""
        ...


TABLE = {"impala": "pronk.losses.impala:ImpalaLoss"}


def make_loss(config: LossConfig) -> Loss:
    """The configured loss."""
    return find("loss", config.name, TABLE)(config)
