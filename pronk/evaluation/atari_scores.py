"""How good an Atari score is, between random play (0) and a human (1).

Raw scores of different games cannot be compared or averaged; the literature therefore reports each on a line through
two known points. `data/atari57.csv` has these points for the 57 games that papers use, from Wang et al. 2016 (Dueling
Network Architectures, arXiv 1511.06581): random play and a professional games tester, up to 30 no-ops at the start, 30
minutes per game. The random scores of the 49 games of Mnih et al. 2015 (Nature 518) are those of that paper; its human
scores differ and are not used. Checked against two independent public transcriptions (dqn_zoo and rldb), which agree in
every number.
"""

from __future__ import annotations

import csv
import functools
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parent / "atari57.csv"


class Reference(NamedTuple):
    """Mean raw scores of one game."""

    random: float
    human: float


@functools.cache
def references() -> dict[str, Reference]:
    """The 57 games, by the names of their ROMs in ale-py."""
    with DATA.open(encoding="utf-8") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return {row["game"]: Reference(float(row["random"]), float(row["human"])) for row in rows}


def human_normalised(game: str, score: float) -> float | None:
    """A raw score as a share of the way from random play (0) to a human (1); None for a game that has no such points.

    Multiply by 100 for the percentages of the papers.
    """
    reference = references().get(game)
    if reference is None:
        return None
    return (score - reference.random) / (reference.human - reference.random)
