"""Learning curves of runs: `comparison` groups them, `curves` and `figures` draw, `plot` writes files."""

from pronk.plotting.plot import plot

__all__ = ["plot"]
