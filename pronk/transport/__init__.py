"""SEAM: how unrolls and parameters travel. `base.py` has the four methods and one exception that are the system."""

from pronk.transport.base import ActorPort, Closed, LearnerPort

__all__ = ["ActorPort", "Closed", "LearnerPort"]
