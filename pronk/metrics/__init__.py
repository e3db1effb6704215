"""Measures of a run: counters, returns, the goal, known illnesses (`diagnosis.py`), statistics of few runs."""

from pronk.metrics.counters import Metrics
from pronk.metrics.experience import Experience, Played

__all__ = ["Experience", "Metrics", "Played"]
