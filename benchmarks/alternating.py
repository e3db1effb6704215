"""Two settings of one configuration by turns, within one run of a script, because machines are noisy.

What `grpc_vs_shared_memory.py` and `central_inference.py` have in common.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from pronk.config import available_cores, load_config
from pronk.starting import train

START_SECONDS = 10.0  # for actors to begin to play
WARM_UP_SECONDS = 5.0  # after that


def parse(description: str) -> argparse.Namespace:
    """Read the options of a comparison of two settings."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--preset", default="pong")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0, help="of training measured, each time")
    parser.add_argument("overrides", nargs="*", help="section.key=value, for both")
    return parser.parse_args()


def compare(
    options: argparse.Namespace, settings: dict[str, list[str]], details: Callable[[Path], str] = lambda run: ""
) -> None:
    """Train with two named settings by turns; print trained steps/s of each run, and the ratio second / first.

    `details` returns what else to print of a run.
    """
    given = " ".join([options.preset, *options.overrides])
    print(f"{given} on {available_cores()} cores, Python {platform.python_version()}")
    rates: dict[str, list[float]] = {name: [] for name in settings}
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(options.repeats):
            for name in settings if repeat % 2 == 0 else reversed(settings):
                run = Path(folder) / f"{name}-{repeat}"
                overrides = [*options.overrides, *settings[name]]
                rates[name].append(steps_per_second(run, options.preset, overrides, options.seconds))
                print(f"{name:>14}: {rates[name][-1]:>9,.0f} trained steps/s{details(run)}", flush=True)
    ratios = [second / first for first, second in zip(*rates.values(), strict=True)]
    names = " / ".join(reversed(settings))
    print(f"{names}: median {statistics.median(ratios):.3f}, each {', '.join(f'{ratio:.3f}' for ratio in ratios)}")


def steps_per_second(path: Path, preset: str, overrides: list[str], seconds: float) -> float:
    """Train, and return the trained steps per second after the warm-up."""
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
