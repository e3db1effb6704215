"""Learning curves and comparisons of runs: `comparison` groups them, `curves` and `figures` draw, `plot` writes files;
`compare` computes the statistics of groups, `profiles` draws them.
"""

from pronk.plotting.plot import plot

__all__ = ["plot"]
