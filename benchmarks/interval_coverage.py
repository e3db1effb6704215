"""How often a 95% bootstrap interval of the IQM holds the true value: `python benchmarks/interval_coverage.py`.

Groups of runs are simulated: normally distributed scores, each task around a mean of its own. Prints, for several
numbers of runs and tasks, the share of 2,000 intervals that contain the IQM of a very large group. Takes 10 seconds.
"""

from __future__ import annotations

import argparse

import numpy as np

from pronk.metrics.statistics import bootstrap, iqm

SIZES = ((2, 1), (3, 1), (5, 1), (10, 1), (20, 1), (3, 10), (5, 10))  # runs of each task, tasks
LARGE = 2_000_000  # scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=2000)
    options = parser.parse_args()
    random = np.random.default_rng(0)
    for runs, tasks in SIZES:
        print(f"{runs:3d} runs x {tasks:2d} tasks: {coverage(runs, tasks, options.groups, random):.1%}", flush=True)


def coverage(runs: int, tasks: int, groups: int, random: np.random.Generator) -> float:
    """The share of intervals that contain the true value."""
    means = 0.3 * np.arange(tasks)
    truth = float(iqm(random.normal(size=(LARGE // tasks, tasks)) + means))
    hits = 0
    for seed in range(groups):
        _, low, high = bootstrap(iqm, random.normal(size=(runs, tasks)) + means, resamples=1000, seed=seed)
        hits += bool(low <= truth <= high)
    return hits / groups


if __name__ == "__main__":
    main()
