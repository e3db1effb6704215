"""What a run is counted and judged by: counters, returns, the goal, known illnesses, statistics of few runs."""

from pronk.metrics.counters import Experience, Metrics

__all__ = ["Experience", "Metrics"]
