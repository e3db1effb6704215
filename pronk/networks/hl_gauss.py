"""HL-Gauss: a value as a histogram, learnt by classification (Farebrother et al. 2024, arXiv 2403.03950).

A target becomes a normal distribution around it, cut into bins; the loss is the distance of the network's histogram
from that one, and the value is the histogram's mean. Its gradient is bounded, however wrong the value is, which a
squared error's is not. The bins lie in units of the targets' running mean and scale, as PopArt keeps them, so rewards
of any size fit. (Unlike with PopArt, the last layer cannot compensate for new statistics: values move with them.)
"""

from __future__ import annotations

import torch
from torch import Tensor

from pronk.networks.heads import in_float32
from pronk.networks.popart import PopArtHead, PopArtValue
from pronk.types import Array

BINS = 101
REACH = 10.0  # standard deviations of the targets on either side
SMOOTHING = 0.75  # the normal distribution's standard deviation, in bins: the paper's
WIDTH = 2 * REACH / BINS
SIGMA = SMOOTHING * WIDTH
FARTHEST = REACH - 4 * SIGMA  # further out, much of the normal distribution would lie beyond the last bin


def edges(device: torch.device | None = None) -> Tensor:
    """Return the borders [BINS + 1] of the bins."""
    return torch.linspace(-REACH, REACH, BINS + 1, device=device)


def centres(device: torch.device | None = None) -> Tensor:
    """Return the middles [BINS] of the bins."""
    borders = edges(device)
    return (borders[1:] + borders[:-1]) / 2


def histogram(target: Tensor) -> Tensor:
    """Normalised targets [...] -> probabilities [..., BINS]. Targets beyond the bins are clamped into them."""
    target = target.clamp(-FARTHEST, FARTHEST).unsqueeze(-1)
    below = torch.special.ndtr((edges(target.device) - target) / SIGMA)
    return below.diff(dim=-1) / (below[..., -1:] - below[..., :1])


def mean(logits: Tensor) -> Tensor:
    """Logits [..., BINS] -> the mean [...] of their histogram."""
    return logits.softmax(-1) @ centres(logits.device)


def distance(logits: Tensor, target: Tensor) -> Tensor:
    """Return the Kullback-Leibler distance [...] of the network's histograms from those of the normalised targets."""
    wanted = histogram(target)
    return (torch.xlogy(wanted, wanted) - wanted * logits.log_softmax(-1)).sum(-1)


class HistogramHead(PopArtHead):
    """A value head with a histogram per task."""

    def __init__(self, inputs: int, tasks: int) -> None:
        super().__init__(inputs, tasks, BINS)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits [..., tasks, BINS]."""
        return in_float32(self._linear, features).unflatten(-1, (-1, BINS))

    def value(self, raw: Tensor, task: Tensor) -> HistogramValue:
        """See `Network.value`."""
        return HistogramValue(self, raw, task.long())

    def _preserve(self, factor: Array, shift: Array) -> None:
        pass


class HistogramValue(PopArtValue):
    """See `types.Value`. The error is a distance between histograms; the rest is as with PopArt."""

    def __init__(self, head: HistogramHead, raw: Tensor, task: Tensor) -> None:
        steps, columns = raw.shape[:2]
        index = task.view(1, columns, 1, 1).expand(steps, columns, 1, BINS)
        self._logits = raw.gather(2, index).squeeze(2)  # [T+1, B, BINS]
        super().__init__(head, mean(self._logits).unsqueeze(-1), task)

    def error(self, target: Tensor) -> Tensor:
        """The distance of each histogram from the target's."""
        return self._known * distance(self._logits[:-1], (target - self._mean) / self._scale)
