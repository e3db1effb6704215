"""Optimisers over one flat vector of weights (see `parameters.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from pronk.config import OptimiserConfig


class RMSPropTF(torch.optim.Optimizer):
    """RMSProp as TensorFlow has it: g / sqrt(v + epsilon), v starting at 1, the learning rate inside the momentum."""

    def __init__(self, params: Any, lr: float, alpha: float, eps: float, momentum: float) -> None:
        super().__init__(params, {"lr": lr, "alpha": alpha, "eps": eps, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update."""
        assert closure is None
        for group in self.param_groups:
            for weight in group["params"]:
                state = self.state[weight]
                if not state:
                    state["mean_square"] = torch.ones_like(weight)
                    state["momentum"] = torch.zeros_like(weight)
                square, velocity = state["mean_square"], state["momentum"]
                square.mul_(group["alpha"]).addcmul_(weight.grad, weight.grad, value=1 - group["alpha"])
                velocity.mul_(group["momentum"]).addcdiv_(
                    weight.grad, (square + group["eps"]).sqrt_(), value=group["lr"]
                )
                weight.sub_(velocity)


def make_optimiser(weights: nn.Parameter, config: OptimiserConfig) -> torch.optim.Optimizer:
    """The configured optimiser."""
    match config.name:
        case "adam":
            return torch.optim.Adam([weights], config.learning_rate, eps=config.epsilon, fused=True)
        case "rmsprop":
            return torch.optim.RMSprop(
                [weights], config.learning_rate, config.decay, config.epsilon, momentum=config.momentum, foreach=False
            )
        case "rmsprop_tf":
            return RMSPropTF([weights], config.learning_rate, config.decay, config.epsilon, config.momentum)


def scheduled_rate(config: OptimiserConfig, done: float) -> float:
    """The learning rate when a share `done` of the run's steps has been trained."""
    if config.schedule == "constant":
        return config.learning_rate
    return config.learning_rate * max(0.0, 1.0 - done)
