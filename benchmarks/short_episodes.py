"""Many short episodes whose ends matter, against few long ones: `python benchmarks/short_episodes.py`.

One environment (examples/environments.py, Countdown) with episodes of 1 to 5 steps and of 500, alternating within one
run of this script. Prints valid trained steps/s of both and their ratio, and the values that were learnt for the short
episodes next to the right ones, gamma^(k-1) with k steps left.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import torch

from pronk.config import load_config
from pronk.envs import probe_spec
from pronk.networks import make_network
from pronk.runs.directory import RunDirectory
from pronk.starting import train

sys.path.insert(0, str(Path(__file__).parents[1]))  # for examples/, here and in the actors

LENGTHS = {"1 to 5": (1, 5), "500": (500, 500)}
WARM_UP_SECONDS = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0)
    options = parser.parse_args()
    rates: dict[str, list[float]] = {name: [] for name in LENGTHS}
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(options.repeats):
            for name, (shortest, longest) in LENGTHS.items():
                run = Path(folder) / f"{name}-{repeat}".replace(" ", "")
                rates[name].append(measure(run, shortest, longest, options.seconds))
                print(f"episodes of {name:>6} steps: {rates[name][-1]:>9,.0f} valid trained steps/s", flush=True)
        print_values(Path(folder) / "1to5-0")
    ratios = [short / long for short, long in zip(*rates.values(), strict=True)]
    print(f"short / long: median {statistics.median(ratios):.2f}, each {', '.join(f'{r:.2f}' for r in ratios)}")


def measure(path: Path, shortest: int, longest: int, seconds: float) -> float:
    overrides = [
        f"env.kwargs.shortest={shortest}",
        f"env.kwargs.longest={longest}",
        "actors.count=1",
        "actors.envs=128",
        "learner.batch_size=128",
        "run.total_steps=1e12",
        f"run.total_seconds={WARM_UP_SECONDS + seconds}",
        "run.log_every_seconds=0.5",
        "optimiser.schedule=constant",
    ]
    train(load_config("examples.environments:Countdown", overrides), run_dir=path)
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    first = next(line for line in lines if line["wall_seconds"] > lines[0]["wall_seconds"] + WARM_UP_SECONDS)
    return (lines[-1]["env_steps"] - first["env_steps"]) / (lines[-1]["wall_seconds"] - first["wall_seconds"])


def print_values(path: Path) -> None:
    run = RunDirectory.open(path)
    config = run.load_config()
    network = make_network(probe_spec(config), config.network)
    network.load_state_dict(run.checkpoints.restore()[0]["learner"]["network"])
    left = torch.arange(1, 6)
    observation = torch.stack([left / 5, torch.zeros(5)], 1).unsqueeze(0)
    values = network(observation, torch.zeros(1, 5, dtype=torch.bool), {}).value[0]
    print("steps left     " + "".join(f"{k:>8}" for k in left.tolist()))
    print("learnt value   " + "".join(f"{value:>8.3f}" for value in values.tolist()))
    print("right value    " + "".join(f"{config.loss.discount ** (k - 1):>8.3f}" for k in left.tolist()))


if __name__ == "__main__":
    main()
