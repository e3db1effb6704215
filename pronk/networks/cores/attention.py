"""A transformer block over the features of the last K observations of the episode.

    state   | K - 1 remembered |                 positions 0 .. K-2
    unroll                     | T new |         positions K-1 .. K-2+T
    seen at step t         | K of them |         positions t .. t+K-1, less those of earlier episodes

An LSTM has to learn what to keep; here everything of the last K steps is there to be looked up, and nothing older.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pronk.config import NetworkConfig
from pronk.networks.cores.base import Core
from pronk.types import ArraySpec, Tree

MOST_HEADS = 4
HEAD_SIZE = 16  # at least
HIDDEN = 2  # times the size: the width of the block's second half


class AttentionCore(Core):
    """One block: y = x + attention(norm x), y + mlp(norm y). The memory holds projected features, and which exist."""

    def __init__(self, inputs: int, config: NetworkConfig) -> None:
        super().__init__()
        self.size, self._window = config.core_size, config.core_window
        self._heads = heads_for(self.size)
        self._inputs = nn.Linear(inputs, self.size)
        self._norm = nn.LayerNorm(self.size)
        self._query = nn.Linear(self.size, self.size)
        self._key_value = nn.Linear(self.size, 2 * self.size)
        self._joined = nn.Linear(self.size, self.size)
        # A bias by age in steps: without it, attention would not know the order of what is remembered.
        self._age = nn.Parameter(torch.zeros(self._heads, self._window))
        self._mlp = nn.Sequential(
            nn.LayerNorm(self.size),
            nn.Linear(self.size, HIDDEN * self.size),
            nn.GELU(),
            nn.Linear(HIDDEN * self.size, self.size),
        )
        past = self._window - 1
        self.state_spec = {"memory": ArraySpec((past, self.size), "float32"), "known": ArraySpec((past,), "float32")}

    def forward(self, features: Tensor, first: Tensor, state: Tree) -> tuple[Tensor, Tree]:
        """[T, B, F], [T, B], [B, K-1, ...] -> [T, B, size] and the state after it."""
        new = self._inputs(features).transpose(0, 1)  # [B, T, size]
        sequence = torch.cat([state["memory"], new], 1)  # [B, K-1+T, size]
        opened = first.transpose(0, 1).cumsum(1)  # [B, T] episodes opened so far
        # [B, K-1+T] the episode of each position; what the state does not know belongs to none
        before = torch.where(state["known"] > 0, 0, -1)
        episode = torch.cat([before, opened], 1)
        seen = self._attend(new, sequence, opened.unsqueeze(2) == episode.unsqueeze(1))
        out = new + self._joined(seen)
        out = out + self._mlp(out)
        past = self._window - 1
        known = (episode == opened[:, -1:])[:, -past:]
        memory = sequence[:, -past:] * known.unsqueeze(-1)
        return out.transpose(0, 1), {"memory": memory, "known": known.to(memory.dtype)}

    def _attend(self, new: Tensor, sequence: Tensor, same_episode: Tensor) -> Tensor:
        """[B, T, size], [B, S, size], [B, T, S] -> [B, T, size]."""
        query = self._split(self._query(self._norm(new)))
        key, value = (self._split(part) for part in self._key_value(self._norm(sequence)).chunk(2, -1))
        now = torch.arange(self._window - 1, sequence.shape[1], device=new.device)  # positions of the T new ones
        age = now.unsqueeze(1) - torch.arange(sequence.shape[1], device=new.device)  # [T, S]
        visible = same_episode & (age >= 0) & (age < self._window)
        score = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5 + self._age[:, age.clamp(0, self._window - 1)]
        weight = score.masked_fill(~visible.unsqueeze(1), -torch.inf).softmax(-1)  # a step sees at least itself
        return (weight @ value).transpose(1, 2).flatten(2)

    def _split(self, array: Tensor) -> Tensor:
        """[B, S, size] -> [B, heads, S, size / heads]."""
        return array.unflatten(-1, (self._heads, -1)).transpose(1, 2)


def heads_for(size: int) -> int:
    """Return the largest number of heads, up to 4, that divides the size into parts of at least 16."""
    return next((heads for heads in range(MOST_HEADS, 1, -1) if size % heads == 0 and size // heads >= HEAD_SIZE), 1)
