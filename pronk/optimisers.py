"""Optimisers over one flat vector of weights (see `parameters.py`): a few operations each.

The formulas are torch.optim's (tests compare them), except `rmsprop_tf` and `bias_correction`. They are written out
because torch.optim imports PyTorch's compiler when the first optimiser is made, which costs a second of every start.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pronk.config import OptimiserConfig

BRAKE_SHARE = 1 / 8  # of the newest batch in the mean: a batch alone is noisy
BRAKE, RECOVERY = 0.95, 1.01  # of the factor, per update: halved within 14 of them, doubled within 70
LOWEST_FACTOR = 0.03


class Optimiser:
    """Changes `weights` in place along `gradient`. All that it remembers is in `state`."""

    def __init__(self, weights: Tensor, gradient: Tensor, config: OptimiserConfig) -> None:
        self._weights, self._gradient, self._config = weights, gradient, config
        self.state: dict[str, Tensor] = {name: torch.zeros_like(weights) for name in self.moments}

    moments: tuple[str, ...]
    """Names of the running averages that are kept for every weight."""

    def step(self, rate: float) -> None:
        """One update with this learning rate."""
        if self._config.weight_decay:
            self._weights.mul_(1 - rate * self._config.weight_decay)
        self._follow(rate)

    def _follow(self, rate: float) -> None:
        """Move the weights along the gradient."""
        raise NotImplementedError

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continue from a saved `state`."""
        if state.keys() != self.state.keys() or any(state[name].shape != self.state[name].shape for name in state):
            raise ValueError(f"optimiser.name={self._config.name} cannot continue from another optimiser's state")
        for name, tensor in self.state.items():
            tensor.copy_(state[name])


class Adam(Optimiser):
    """Adam with bias correction, betas 0.9 and 0.999."""

    moments = ("mean", "mean_square")
    betas = (0.9, 0.999)

    def __init__(self, weights: Tensor, gradient: Tensor, config: OptimiserConfig) -> None:
        super().__init__(weights, gradient, config)
        self.state["updates"] = torch.zeros((), dtype=torch.int64)

    def _follow(self, rate: float) -> None:
        """w -= rate m / (sqrt(v) + epsilon), m and v corrected for their start at zero."""
        mean, square = self.state["mean"], self.state["mean_square"]
        updates = int(self.state["updates"].add_(1))
        mean.lerp_(self._gradient, 1 - self.betas[0])
        square.mul_(self.betas[1]).addcmul_(self._gradient, self._gradient, value=1 - self.betas[1])
        unbias, unbias_square = (1 - beta**updates for beta in self.betas)
        spread = square.sqrt().div_(math.sqrt(unbias_square)).add_(self._config.epsilon)
        self._weights.addcdiv_(mean, spread, value=-rate / unbias)


class RMSProp(Optimiser):
    """As PyTorch has it: g / (sqrt(v) + epsilon), v starting at 0, the learning rate outside the momentum.

    With `bias_correction`, which PyTorch does not have, v is divided by 1 - decay^updates.
    """

    moments = ("mean_square", "momentum")

    def __init__(self, weights: Tensor, gradient: Tensor, config: OptimiserConfig) -> None:
        super().__init__(weights, gradient, config)
        if config.bias_correction:
            self.state["updates"] = torch.zeros((), dtype=torch.int64)

    def _follow(self, rate: float) -> None:
        """w -= rate b, with b = momentum b + g / (sqrt(v) + epsilon).

        For a large network every operation is a walk through all of its memory, so they are as few as can be.
        """
        square, momentum, config = self.state["mean_square"], self.state["momentum"], self._config
        square.mul_(config.decay).addcmul_(self._gradient, self._gradient, value=1 - config.decay)
        unbias = 1.0
        if config.bias_correction:
            unbias = math.sqrt(1 - config.decay ** int(self.state["updates"].add_(1)))
        spread = square.sqrt().add_(config.epsilon * unbias)  # times `unbias`, as is `value` below
        if not config.momentum:
            self._weights.addcdiv_(self._gradient, spread, value=-rate * unbias)
            return
        momentum.mul_(config.momentum).addcdiv_(self._gradient, spread, value=unbias)
        self._weights.sub_(momentum, alpha=rate)


class RMSPropTF(Optimiser):
    """As TensorFlow has it: g / sqrt(v + epsilon), v starting at 1, the learning rate inside the momentum."""

    moments = ("mean_square", "velocity")

    def __init__(self, weights: Tensor, gradient: Tensor, config: OptimiserConfig) -> None:
        super().__init__(weights, gradient, config)
        self.state["mean_square"].fill_(1.0)

    def _follow(self, rate: float) -> None:
        """w -= b, with b = momentum b + rate g / sqrt(v + epsilon)."""
        square, velocity = self.state["mean_square"], self.state["velocity"]
        square.mul_(self._config.decay).addcmul_(self._gradient, self._gradient, value=1 - self._config.decay)
        spread = (square + self._config.epsilon).sqrt_()
        velocity.mul_(self._config.momentum).addcdiv_(self._gradient, spread, value=rate)
        self._weights.sub_(velocity)


OPTIMISERS: dict[str, type[Optimiser]] = {"adam": Adam, "rmsprop": RMSProp, "rmsprop_tf": RMSPropTF}


def make_optimiser(weights: Tensor, gradient: Tensor, config: OptimiserConfig) -> Optimiser:
    """The configured optimiser."""
    return OPTIMISERS[config.name](weights, gradient, config)


class KlBrake:
    """A factor of the learning rate that falls while the policy is too far from the policies that acted."""

    def __init__(self, limit: float | None, device: torch.device) -> None:
        self._limit = limit
        self.values = torch.tensor([0.0, 1.0], device=device)
        """Mean KL divergence of the last updates, and the factor."""

    @property
    def factor(self) -> float:
        return float(self.values[1])

    def observe(self, kl: float) -> None:
        """Adjust the factor to the mean KL divergence of a batch."""
        if self._limit is None:
            return
        mean, factor = self.values.tolist()
        mean += BRAKE_SHARE * (kl - mean)
        factor *= BRAKE if mean > self._limit else RECOVERY
        self.values.copy_(torch.tensor([mean, min(1.0, max(LOWEST_FACTOR, factor))]))
