"""The text encoder: the paper's network for instructions, an embedding of each word and an LSTM over the words."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pronk.types import ArraySpec

EMBEDDING = 20  # the paper's sizes, figure 3
HIDDEN = 64


class TextEncoder(nn.Module):
    """Texts as word numbers [M, L] (0: no word) -> features [M, 64]: the LSTM's state after the last word.

    The instruction of an episode stays the same, so a batch holds few different texts. Each is encoded once, and only
    up to the longest one's last word. Exported and compiled graphs encode every row in full, with the same result.
    """

    def __init__(self, spec: ArraySpec) -> None:
        super().__init__()
        assert spec.words, "not a text"
        self.size = HIDDEN
        self._embedding = nn.Embedding(spec.words + 1, EMBEDDING)
        self._cell = nn.LSTMCell(EMBEDDING, HIDDEN)

    def forward(self, texts: Tensor) -> Tensor:
        """[M, L] -> [M, size]."""
        if torch.compiler.is_compiling() or torch.jit.is_tracing():
            return self._encode(texts)
        different, index = torch.unique(texts, dim=0, return_inverse=True)
        return self._encode_at_once(different)[index]

    def _encode_at_once(self, texts: Tensor) -> Tensor:
        """As `_encode`, with one call for all words: acting on a few texts takes a third of the time."""
        lengths = (texts != 0).sum(1)
        words = int(lengths.max())
        if not words:
            return self._embedding.weight.new_zeros(texts.shape[0], HIDDEN)
        embedded = self._embedding(texts[:, :words].long()).transpose(0, 1)
        zeros = embedded.new_zeros(1, texts.shape[0], HIDDEN)
        weights = [self._cell.weight_ih, self._cell.weight_hh, self._cell.bias_ih, self._cell.bias_hh]
        states, _, _ = torch.lstm(embedded, (zeros, zeros), weights, True, 1, 0.0, self.training, False, False)
        last = states[(lengths - 1).clamp(min=0), torch.arange(texts.shape[0], device=texts.device)]
        return last * (lengths > 0).unsqueeze(-1)

    def _encode(self, texts: Tensor) -> Tensor:
        embedded = self._embedding(texts.long())
        hidden = cell = embedded.new_zeros(texts.shape[0], HIDDEN)
        for column in range(texts.shape[1]):
            there = (texts[:, column] != 0).unsqueeze(-1)
            after, cell = self._cell(embedded[:, column], (hidden, cell))
            hidden = torch.where(there, after, hidden)  # the cell need not be kept: after a zero there are no words
        return hidden
