"""HL-Gauss: a value as a histogram, learnt by classification (Farebrother et al. 2024, arXiv 2403.03950).

A target becomes a normal distribution around it, cut into bins; the loss is the distance of the network's histogram
from that one, and the value is the histogram's mean. Its gradient is bounded, however wrong the value is, which a
squared error's is not. The bins lie in units of the targets' running mean and scale, as PopArt keeps them, so rewards
of any size fit.
"""

from __future__ import annotations

import torch
from torch import Tensor

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
    """Normalised targets [...] -> probabilities [..., BINS]. What lies beyond the bins counts as just within."""
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
