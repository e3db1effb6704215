"""SEAM: the memory between torso and heads. `base.py` has the class to derive from and the table of implementations."""

from pronk.networks.cores.base import Core, make_core

__all__ = ["Core", "make_core"]
