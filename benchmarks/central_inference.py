"""Central inference against local: `python benchmarks/central_inference.py --preset pong actors.count=8 actors.envs=1`.

The same configuration with actors.inference=local and actors.inference=central, alternating within one run of this
script, because machines are noisy. Prints trained steps/s of both, after a warm-up, their ratio, the policy lag, and
how many observations the server had in a batch.

What it was made for: many thin actors with a large network, where central inference should pay

    python benchmarks/central_inference.py --preset pong actors.count=8 actors.envs=1 network.torso=deep

and few actors with a small one, where it should not

    python benchmarks/central_inference.py --preset cartpole
"""

from __future__ import annotations

import json
import platform
import statistics
import tempfile
from pathlib import Path

from grpc_vs_shared_memory import measure, parse

from pronk.config import available_cores

WAYS = ("local", "central")


def main() -> None:
    options = parse(__doc__.splitlines()[0])
    given = " ".join([options.preset, *options.overrides])
    print(f"{given} on {available_cores()} cores, Python {platform.python_version()}")
    rates: dict[str, list[float]] = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(options.repeats):
            for name in WAYS if repeat % 2 == 0 else reversed(WAYS):
                run = Path(folder) / f"{name}-{repeat}"
                overrides = [*options.overrides, f"actors.inference={name}"]
                rates[name].append(measure(run, options.preset, overrides, options.seconds))
                print(f"{name:>8}: {rates[name][-1]:>9,.0f} trained steps/s, {more(run)}", flush=True)
    ratios = [central / local for local, central in zip(*rates.values(), strict=True)]
    print(f"central / local: median {statistics.median(ratios):.2f}, each {', '.join(f'{r:.2f}' for r in ratios)}")


def more(run: Path) -> str:
    """The lag at the end, and what the server's log says about its batches."""
    lag = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["policy_lag"]
    log = run / "logs" / "inference.log"
    batches = [line for line in log.read_text().splitlines() if " batches, " in line] if log.exists() else []
    return "; ".join([f"policy lag {lag:.1f}", *(line.split(" ", 2)[2] for line in batches[-1:])])


if __name__ == "__main__":
    main()
