"""SEAM: how several learners act as one. `base.py` has the protocol; `rendezvous.py` says which learner this is."""

from pronk.learners.base import GroupEnded, LearnerGroup, Shared, SingleLearner, coordinate, participate
from pronk.learners.rendezvous import Rendezvous, find_rendezvous, rendezvous_in

__all__ = [
    "GroupEnded",
    "LearnerGroup",
    "Rendezvous",
    "Shared",
    "SingleLearner",
    "coordinate",
    "find_rendezvous",
    "participate",
    "rendezvous_in",
]
