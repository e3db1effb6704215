"""Training over gRPC on this machine against shared memory: `python benchmarks/grpc_vs_shared_memory.py --preset pong`.

The same configuration with transport=shared_memory and transport=grpc, alternating within one run of this script,
because machines are noisy. Prints trained steps/s of both, after a warm-up, and their ratio.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
from pathlib import Path

from pronk.config import available_cores, load_config
from pronk.starting import train

TRANSPORTS = ("shared_memory", "grpc")
START_SECONDS = 10.0  # for actors to begin to play
WARM_UP_SECONDS = 5.0  # after that


def main() -> None:
    options = parse(__doc__.splitlines()[0])
    print(f"{options.preset} on {available_cores()} cores, Python {platform.python_version()}")
    rates: dict[str, list[float]] = {name: [] for name in TRANSPORTS}
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(options.repeats):
            for name in TRANSPORTS:
                run = Path(folder) / f"{name}-{repeat}"
                overrides = [*options.overrides, f"transport={name}"]
                rates[name].append(measure(run, options.preset, overrides, options.seconds))
                print(f"{name:>14}: {rates[name][-1]:>9,.0f} trained steps/s", flush=True)
    ratios = [grpc / memory for memory, grpc in zip(*rates.values(), strict=True)]
    print(f"grpc / shared_memory: median {statistics.median(ratios):.2f}, each {', '.join(f'{r:.2f}' for r in ratios)}")


def parse(description: str) -> argparse.Namespace:
    """Read the options of a comparison of two settings."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--preset", default="pong")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0, help="of training measured, each time")
    parser.add_argument("overrides", nargs="*", help="section.key=value, for both")
    return parser.parse_args()


def measure(path: Path, preset: str, overrides: list[str], seconds: float) -> float:
    limits = {
        "run.stop_return": None,
        "run.total_steps": 10**12,
        "run.total_seconds": START_SECONDS + WARM_UP_SECONDS + seconds,
        "run.log_every_seconds": 0.5,
        "optimiser.schedule": "constant",
    }
    train(load_config(preset, overrides).replace(limits), run_dir=path)
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    warm = [line for line in lines if line["wall_seconds"] >= lines[0]["wall_seconds"] + WARM_UP_SECONDS]
    if len(warm) < 2:
        raise SystemExit("too little was trained in that time; --seconds more")
    first, last = warm[0], warm[-1]
    return (last["env_steps"] - first["env_steps"]) / (last["wall_seconds"] - first["wall_seconds"])


if __name__ == "__main__":
    main()
