"""The torso for grids of codes, such as MiniGrid's: each cell holds the numbers of an object, a colour and a state.

Codes are names, not amounts: a key (5) is not half a goal (10). So each channel has a table with a vector for each
code, and a cell is the sum of its channels' vectors (the bag of words of BabyAI 1.1, arXiv 2007.12770).

A text beside the grid asks about it: "go to the red ball". Its words become a few questions, which every cell answers:

    words -- sum of their vectors -- questions [D, Q] --.
    codes -- sum of their vectors -- cells [H, W, D] ---+-- product -- answers [H, W, Q], further channels of the grid

Words and cells are both sums, so a product is large where all that the words name comes together. Without it a network
must first find out, from rewards alone, which products of words and cells matter: BabyAI-GoToLocal takes 300,000 steps
with it, and was not learnt in 1,000,000 without.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pronk.networks.images import Small, conv, in_unit_range
from pronk.types import ArraySpec

CODES = 256  # what a byte can hold: the spaces of such grids say 0..255, whatever is in them
WIDTH = 8  # of a code's vector
WIDTH_WITH_TEXT = 32
QUESTIONS = 16
WORD_WIDTH = 64  # of a word's vector
MIXED = 16  # channels after the first layer


class Codes(Small):
    """`Small` over the codes' vectors. It also gets the bytes as they are, in case they are brightness, not codes."""

    def channels(self) -> int:
        """Return the width of a cell: its vector, its bytes, and its answers."""
        count = super().channels()
        texts = {path: spec for path, spec in self._others.items() if spec.words}
        width = WIDTH_WITH_TEXT if texts else WIDTH
        self._vectors = nn.Parameter(torch.randn(count, CODES, width) * count**-0.5)
        self._texts = list(texts)
        self._questions = nn.ModuleList(Questions(spec, width) for spec in texts.values())
        return width + count + QUESTIONS * len(texts)

    def convolutions(self, channels: int) -> nn.Module:
        """One layer over a cell and its neighbours; with a text, one within each cell before it, to combine answers."""
        if not self._texts:
            return super().convolutions(channels)
        return nn.Sequential(*conv(channels, MIXED, 1, 1), super().convolutions(MIXED))

    def pictures(self, arrays: dict[str, Tensor]) -> Tensor:
        """See `ImageTorso.pictures`."""
        bytes_ = torch.cat(self._planes(arrays), 1).movedim(1, -1)  # [M, H, W, C]
        # `index_select`, because the gradient of `embedding` takes three times as long on a CPU.
        channels = zip(bytes_.unbind(-1), self._vectors, strict=True)
        vectors = [table.index_select(0, codes.reshape(-1).long()) for codes, table in channels]
        cells = sum(vectors[1:], start=vectors[0]).unflatten(0, bytes_.shape[:3])  # [M, H, W, width]
        asked = zip(self._questions, self._texts, strict=True)
        answers = [questions(arrays[path], cells) for questions, path in asked]
        # Joined along the last axis and then moved: that is channels_last already, and nothing is copied again.
        return torch.cat([cells, *answers, in_unit_range(bytes_)], -1).movedim(-1, 1)


class Questions(nn.Module):
    """What the words of a text ask every cell of a grid."""

    def __init__(self, spec: ArraySpec, width: int) -> None:
        super().__init__()
        self._words = nn.Embedding(spec.words + 1, WORD_WIDTH, padding_idx=0)  # 0: no word
        self._questions = nn.Linear(WORD_WIDTH, width * QUESTIONS)

    def forward(self, texts: Tensor, cells: Tensor) -> Tensor:
        """Words [M, L], cells [M, H, W, D] -> answers [M, H, W, QUESTIONS]."""
        width = cells.shape[-1]
        questions = self._questions(self._words(texts.long()).sum(1)).unflatten(-1, (width, QUESTIONS))
        answers = torch.matmul(cells.flatten(1, 2), questions) * width**-0.5
        return answers.unflatten(1, cells.shape[1:3])
