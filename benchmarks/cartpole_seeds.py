"""CartPole from the shell prompt to solved, seed by seed: `python benchmarks/cartpole_seeds.py --seeds 10`.

Each row is one `pronk train cartpole --seed N` as a user would type it (start-up included) and one `pronk eval` of the
result over 100 episodes. Prints a Markdown table; docs/results/cartpole.md holds one.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pronk.config import available_cores

PRONK = [sys.executable, "-m", "pronk"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    seeds = parser.parse_args().seeds
    print(
        f"{platform.processor() or platform.machine()}, {available_cores()} cores, Python {platform.python_version()}\n"
    )
    print(
        "| seed | seconds from the prompt | of them training | steps | updates | mean return | eval of 100 episodes |"
    )
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, seeds + 1):
            print(row(seed, Path(folder) / str(seed)), flush=True)


def row(seed: int, run: Path) -> str:
    began = time.perf_counter()
    subprocess.run([*PRONK, "train", "cartpole", "--seed", str(seed), "--quiet", "--run-dir", str(run)], check=True)
    seconds = time.perf_counter() - began
    summary = json.loads((run / "summary.json").read_text())
    played = subprocess.run([*PRONK, "eval", str(run), "--json"], check=True, capture_output=True, text=True)
    mean = json.loads(played.stdout)["mean"]
    return (
        f"| {seed} | {seconds:.1f} | {summary['wall_seconds']:.1f} | {summary['env_steps']:,} | {summary['updates']:,} "
        f"| {summary['episode_return']:.1f} ({summary['outcome']}) | {mean:.1f} |"
    )


if __name__ == "__main__":
    main()
