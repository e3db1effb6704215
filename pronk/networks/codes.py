"""The torso for grids of codes, such as MiniGrid's: each cell holds the numbers of an object, a colour and a state.

Codes are names, not amounts: a key (5) is not half a goal (10). So each channel has a table with a vector for each
code, and a cell is the sum of its channels' vectors (the bag of words of BabyAI 1.1, arXiv 2007.12770).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from pronk.networks.images import Small, in_unit_range
from pronk.types import ArraySpec

CODES = 256  # what a byte can hold: the spaces of such grids say 0..255, whatever is in them
WIDTH = 8  # of a code's vector


class Codes(Small):
    """`Small` over the codes' vectors. It also gets the bytes as they are, in case they are brightness, not codes."""

    def channels(self, images: list[ArraySpec]) -> int:
        """Return the width of a cell: its vector and its bytes."""
        count = super().channels(images)
        self._vectors = nn.Parameter(torch.randn(count, CODES, WIDTH) * count**-0.5)
        return WIDTH + count

    def pictures(self, images: list[Tensor]) -> Tensor:
        """See `ImageTorso.pictures`."""
        bytes_ = torch.cat(images, 1) if len(images) > 1 else images[0]
        channels = zip(bytes_.unbind(1), self._vectors, strict=True)
        cells = [functional.embedding(codes.long(), table) for codes, table in channels]
        vectors = torch.stack(cells).sum(0) if len(cells) > 1 else cells[0]  # [M, H, W, WIDTH]
        return torch.cat([vectors.movedim(-1, 1), in_unit_range(bytes_)], 1)
