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
import statistics
from collections.abc import Sequence
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


def human_normalised_summary(games: Sequence[str | None], scores: Sequence[float | None]) -> dict[str, float]:
    """Return the mean, median and capped mean of the normalised scores of several games.

    Capped: what is beyond a human counts as 1, so that a few easy games do not decide. Games without a known human
    score are left out; the result is empty before each of the others has a score, or where there are none.
    """
    known = [(game, score) for game, score in zip(games, scores, strict=True) if game and game in references()]
    found = [None if score is None else human_normalised(game, score) for game, score in known]
    values = [value for value in found if value is not None]
    if not values or len(values) < len(known):
        return {}
    return {
        "human_normalised": statistics.fmean(values),
        "human_normalised_median": statistics.median(values),
        "human_normalised_capped": statistics.fmean(min(1.0, value) for value in values),
    }
