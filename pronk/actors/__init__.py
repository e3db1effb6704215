"""SEAM: where a learner's actors run. `base.py` has the protocol and the table of implementations."""

from pronk.actors.base import ActorSetup, running_actors

__all__ = ["ActorSetup", "running_actors"]
