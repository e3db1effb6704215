"""What a network's raw values mean, for the loss: the hook for value normalisation."""

from __future__ import annotations

from torch import Tensor


class PlainValue:
    """Values that are learnt in the units of the return, without normalisation. See `types.Value`."""

    __slots__ = ("estimate",)

    def __init__(self, raw: Tensor) -> None:
        self.estimate = raw

    def error(self, target: Tensor) -> Tensor:
        """1/2 (v_t - V(x_t))^2."""
        return 0.5 * (target - self.estimate[:-1]).square()

    def scaled(self, advantage: Tensor) -> Tensor:
        """The advantage as it is."""
        return advantage

    def observe(self, target: Tensor, advantage: Tensor, valid: Tensor) -> None:
        """Nothing to keep."""
