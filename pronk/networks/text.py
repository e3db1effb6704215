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
        words = int((different != 0).any(0).sum())  # words come first, so these are the columns in use
        return self._encode(different[:, :words])[index]

    def _encode(self, texts: Tensor) -> Tensor:
        embedded = self._embedding(texts.long())
        hidden = cell = embedded.new_zeros(texts.shape[0], HIDDEN)
        for column in range(texts.shape[1]):
            there = (texts[:, column] != 0).unsqueeze(-1)
            after, cell = self._cell(embedded[:, column], (hidden, cell))
            hidden = torch.where(there, after, hidden)  # zeros follow the words: the cell is not needed after them
        return hidden
