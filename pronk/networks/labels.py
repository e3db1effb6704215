"""The encoder of labels that have too many classes for one-hot vectors: a table with a learnt vector for each class."""

from __future__ import annotations

from torch import Tensor, nn

from pronk.types import ArraySpec

MOST_ONE_HOT = 1024  # classes of all labels of an entry together; Taxi has 500, a NetHack map 21 x 79 x 5,976
LEAST, MOST = 8, 64  # width of a vector


class LabelEncoder(nn.Module):
    """Labels [M, ...] -> [M, labels x width]. All labels of an entry share one table: a map has one kind of things."""

    def __init__(self, spec: ArraySpec) -> None:
        super().__init__()
        width = max(LEAST, min(MOST, MOST_ONE_HOT // spec.size))
        self.size = width * spec.size
        self._vectors = nn.Embedding(max(spec.categories), width)

    def forward(self, labels: Tensor) -> Tensor:
        """[M, ...] -> [M, size]."""
        return self._vectors(labels.flatten(1) if labels.dim() > 1 else labels.unsqueeze(1)).flatten(1)


def has_many_classes(spec: ArraySpec) -> bool:
    """Whether an entry gets this encoder."""
    return sum(spec.categories) > MOST_ONE_HOT
