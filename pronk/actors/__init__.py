"""SEAM: where actors run. `base.py` has the protocol and the table of implementations."""

from pronk.actors.base import ActorFailed, Play, playing

__all__ = ["ActorFailed", "Play", "playing"]
