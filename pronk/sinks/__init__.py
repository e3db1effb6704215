"""SEAM: where metrics go. `base.py` has the protocol."""

from pronk.sinks.base import EvaluationSink, Sink

__all__ = ["EvaluationSink", "Sink"]
