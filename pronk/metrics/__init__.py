"""Measures of a run: counters, returns, the goal, known illnesses (`diagnosis.py`), statistics of few runs."""

from pronk.metrics.counters import Experience, Metrics

__all__ = ["Experience", "Metrics"]
