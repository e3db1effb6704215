"""What normalising observations and values costs: `python benchmarks/normaliser_cost.py cartpole pong`.

Environment, inference and learner of a preset with network.normalise and network.popart off and on, measured by turns
of a twentieth of a second, so that a slow moment of the machine meets both. The cost is what a core takes longer for a
step in all: 1/env + 1/inference + passes/learner, from the medians over all turns. Off is off:
`tests/networks/test_statistics.py` checks that such a network has nothing more to add up, and the same gradient.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics

import torch

from pronk.bench.parts import NAMES, Parts
from pronk.config import ResolvedConfig, load_config, resolve
from pronk.parameters import ALWAYS_MEASURED
from pronk.processes.freed_memory import keep_freed_memory

TURN = 0.05  # seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="+")
    parser.add_argument("--turns", type=int, default=200)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as in training
    print("| preset | | env | inference | learner | a step takes longer by |\n|---|---|---|---|---|---|")
    for preset in options.presets:
        off, on = (settings(preset, value) for value in ("false", "true"))
        with contextlib.closing(Parts(off)) as plain, contextlib.closing(Parts(on)) as normalised:
            rates = measure({"off": plain, "on": normalised}, options.turns)
        times = {name: seconds_per_step(off, each) for name, each in rates.items()}
        for name, each in rates.items():
            cost = f"{times['on'] / times['off'] - 1:.1%}" if name == "on" else ""
            print(f"| {preset} | {name} | {' | '.join(f'{each[part]:,.0f}' for part in NAMES)} | {cost} |", flush=True)


def settings(preset: str, value: str) -> ResolvedConfig:
    return resolve(load_config(preset, [f"network.{key}={value}" for key in ("normalise", "popart")]))


def measure(both: dict[str, Parts], turns: int) -> dict[str, dict[str, float]]:
    """Return the median steps/s of each part of both."""
    for parts in both.values():
        for _ in range(ALWAYS_MEASURED):  # at first, statistics are taken from every batch
            parts.rate("learner", 0.0)
    rates: dict[str, dict[str, list[float]]] = {name: {part: [] for part in NAMES} for name in both}
    for turn in range(turns):
        for part in NAMES:
            for name in both if turn % 2 else reversed(both):
                rates[name][part].append(both[name].rate(part, TURN))
    return {name: {part: statistics.median(each) for part, each in of.items()} for name, of in rates.items()}


def seconds_per_step(config: ResolvedConfig, rates: dict[str, float]) -> float:
    passes = config.learner.passes if isinstance(config.learner.passes, int) else 1
    return 1 / rates["env"] + 1 / rates["inference"] + passes / rates["learner"]


if __name__ == "__main__":
    main()
