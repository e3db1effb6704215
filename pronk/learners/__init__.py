"""SEAM: how learners act as one. `base.py` has the protocol; `place.py` says which learner this process is."""

from pronk.learners.base import Group, Left, Share, Solo, following, leading
from pronk.learners.place import Place, find_place, place_in

__all__ = [
    "Group",
    "Left",
    "Place",
    "Share",
    "Solo",
    "find_place",
    "following",
    "leading",
    "place_in",
]
