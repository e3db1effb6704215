"""SEAM: where actors run. `base.py` has the protocol."""

from pronk.launch.base import ActorFailed, Launcher

__all__ = ["ActorFailed", "Launcher"]
