"""SEAM: where metrics go. `base.py` has the protocol."""

from pronk.sinks.base import Sink

__all__ = ["Sink"]
