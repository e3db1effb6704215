"""Distributions over actions, written out: each is a few tensor operations, and acting is dominated by them.

The parameters come from a network's head as [..., P]; actions are in the agent's units (`types.ActionSpec`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Generator, Tensor

from pronk.types import ActionSpec

# Not -inf, so that a row with every choice masked stays finite. The last observation of an episode may be such a row.
MASKED = -1e9


class Distribution(Protocol):
    """A distribution over actions for each of [...] observations."""

    def sample(self, generator: Generator | None = None) -> Tensor:
        """One action each."""
        ...

    def mode(self) -> Tensor:
        """The likeliest action of each."""
        ...

    def log_prob(self, action: Tensor) -> Tensor:
        """[...] log density."""
        ...

    def entropy(self) -> Tensor:
        """[...] in nats."""
        ...

    def kl_from_uniform(self) -> Tensor:
        """[...] KL(uniform || policy) in nats, over the options that are allowed; 0 for real numbers."""
        ...


class Categorical:
    """One choice among P."""

    def __init__(self, logits: Tensor, mask: Tensor | None = None) -> None:
        self._forbidden = None if mask is None else mask == 0
        if self._forbidden is not None:
            logits = logits.masked_fill(self._forbidden, MASKED)
        self._log_p = torch.log_softmax(logits, -1)

    def sample(self, generator: Generator | None = None) -> Tensor:
        """Sample by the exponential race: argmax of p / e with e ~ Exp(1). Cheaper than `multinomial`."""
        race = torch.empty_like(self._log_p).exponential_(generator=generator)
        return (self._log_p - race.log_()).argmax(-1)

    def mode(self) -> Tensor:
        """The likeliest."""
        return self._log_p.argmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Of a choice."""
        return self._log_p.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """- sum p log p; a masked choice adds nothing."""
        return -(self._log_p.exp() * self._log_p).sum(-1)

    def kl_from_uniform(self) -> Tensor:
        """- log n - 1/n sum log p, over n allowed options."""
        if self._forbidden is None:
            return -math.log(self._log_p.shape[-1]) - self._log_p.mean(-1)
        # At least 1: the last observation of an episode may allow nothing.
        allowed = (~self._forbidden).sum(-1).clamp(min=1)
        return -allowed.log() - self._log_p.masked_fill(self._forbidden, 0.0).sum(-1) / allowed


class MultiCategorical:
    """Several independent choices; their logits lie one after another."""

    def __init__(self, choices: tuple[int, ...], logits: Tensor, mask: Tensor | None = None) -> None:
        masks = mask.split(choices, -1) if mask is not None else [None] * len(choices)
        self._parts = [Categorical(*pair) for pair in zip(logits.split(choices, -1), masks, strict=True)]

    def sample(self, generator: Generator | None = None) -> Tensor:
        """One option of each choice, [..., choices]."""
        return torch.stack([part.sample(generator) for part in self._parts], -1)

    def mode(self) -> Tensor:
        """The likeliest option of each choice."""
        return torch.stack([part.mode() for part in self._parts], -1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Of all choices together."""
        pairs = zip(self._parts, action.unbind(-1), strict=True)
        return torch.stack([part.log_prob(option) for part, option in pairs]).sum(0)

    def entropy(self) -> Tensor:
        """Of all choices together."""
        return torch.stack([part.entropy() for part in self._parts]).sum(0)

    def kl_from_uniform(self) -> Tensor:
        """Of all choices together."""
        return torch.stack([part.kl_from_uniform() for part in self._parts]).sum(0)


class Gaussian:
    """Independent normals; the first half of the parameters is the mean, the second the log standard deviation.

    Samples are not squashed or clipped here: the environment's adapter clips what it plays, and the density is of what
    was sampled, so the importance ratio stays exact at the bounds.
    """

    def __init__(self, shape: tuple[int, ...], parameters: Tensor, mask: Tensor | None = None) -> None:
        mean, log_std = parameters.chunk(2, -1)
        self._shape, self._mean, self._log_std = shape, mean, log_std

    def sample(self, generator: Generator | None = None) -> Tensor:
        """[..., *shape]."""
        noise = torch.empty_like(self._mean).normal_(generator=generator)
        return self._shaped(self._mean + self._log_std.exp() * noise).detach()

    def mode(self) -> Tensor:
        """The mean."""
        return self._shaped(self._mean)

    def log_prob(self, action: Tensor) -> Tensor:
        """Summed over the action's elements."""
        z = (action.reshape(self._mean.shape) - self._mean) * (-self._log_std).exp()
        return -(0.5 * z.square() + self._log_std + 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(self) -> Tensor:
        """Summed over the action's elements."""
        return (self._log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)

    def kl_from_uniform(self) -> Tensor:
        """Zero: there are no options that could die out."""
        return torch.zeros_like(self._mean[..., 0])

    def _shaped(self, flat: Tensor) -> Tensor:
        return flat.reshape(*flat.shape[:-1], *self._shape)


def distribution_for(action: ActionSpec) -> Callable[[Tensor, Tensor | None], Distribution]:
    """(parameters, mask or None) -> distribution, for an action space."""
    if not action.choices:
        return functools.partial(Gaussian, action.shape)
    if action.shape == ():
        return Categorical
    return functools.partial(MultiCategorical, action.choices)


def parameter_count(action: ActionSpec) -> int:
    """P: how many numbers a head must give."""
    return action.parameter_count
