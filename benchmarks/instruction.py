"""Does the agent do what it is told? `python benchmarks/instruction.py`

BabyAI-GoToLocal names one of eight objects in a room ("go to the red ball") and pays for reaching that one. Reaching
another one costs nothing but time: who is not told can visit all of them in turn. Trains with the instruction and
without it, at Pronk's defaults and for the same number of steps, with one actor each, side by side. Prints the share of
400 episodes in which the named object was reached, and the mean number of steps.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pronk

ENVIRONMENT = "BabyAI-GoToLocal-v0"
WAYS: dict[str, tuple[str, ...]] = {
    "with its instruction": (),
    "without": ("env.wrappers=[{keys: {drop: [mission]}}]",),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=float, default=6e5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=400)
    parser.add_argument("--runs", type=Path, default=Path("runs/instruction"))
    options = parser.parse_args()
    with ThreadPoolExecutor(len(WAYS)) as threads:
        for way, (success, steps) in zip(WAYS, threads.map(lambda way: measure(way, options), WAYS), strict=True):
            print(f"{way}: {success:.1%} of {options.episodes} episodes, {steps:.1f} steps", flush=True)


def measure(way: str, options: argparse.Namespace) -> tuple[float, float]:
    """Train and evaluate once. Returns the share of episodes with a reward, and the mean length of an episode."""
    run = options.runs / f"{way.replace(' ', '-')}-{options.steps:.0f}-seed{options.seed}"
    settings = (*WAYS[way], f"run.total_steps={options.steps:.0f}", "actors.count=1", "--seed", str(options.seed))
    command = [sys.executable, "-m", "pronk", "train", ENVIRONMENT, *settings, "--quiet", "--run-dir", str(run)]
    subprocess.run(command, check=True)
    result = pronk.evaluate(run, episodes=options.episodes)
    return sum(value > 0 for value in result.returns) / len(result.returns), statistics.mean(result.lengths)


if __name__ == "__main__":
    main()
