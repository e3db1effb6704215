"""CartPole from the shell prompt to solved, seed by seed: `python benchmarks/cartpole_seeds.py --seeds 10`.

Each row is one `pronk train cartpole --seed N` as a user would type it (start-up included) and one `pronk eval` of the
result over 100 episodes. Prints a Markdown table; docs/results/cartpole.md holds one. With `--before CLONE`, a clone of
the repository at an earlier commit, that version takes every seed in turn with this one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pronk.config import available_cores

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--before", type=Path, metavar="CLONE", help="also run the version in this folder, by turns")
    options = parser.parse_args()
    versions = {"now": HERE.parent} | ({"before": options.before.resolve()} if options.before else {})
    print(
        f"{platform.processor() or platform.machine()}, {available_cores()} cores, Python {platform.python_version()}\n"
    )
    print(
        "| version | seed | seconds from the prompt | of them training | steps | updates | mean return "
        "| eval of 100 episodes |"
    )
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, options.seeds + 1):
            for version in versions if seed % 2 else reversed(versions):
                print(row(version, versions[version], seed, Path(folder) / f"{version}{seed}"), flush=True)


def row(version: str, tree: Path, seed: int, run: Path) -> str:
    began = time.perf_counter()
    pronk(tree, "train", "cartpole", "--seed", str(seed), "--quiet", "--run-dir", str(run))
    seconds = time.perf_counter() - began
    summary = json.loads((run / "summary.json").read_text())
    mean = json.loads(pronk(tree, "eval", str(run), "--json"))["mean"]
    return (
        f"| {version} | {seed} | {seconds:.1f} | {summary['wall_seconds']:.1f} | {summary['env_steps']:,} "
        f"| {summary['updates']:,} | {summary['episode_return']:.1f} ({summary['outcome']}) | {mean:.1f} |"
    )


def pronk(tree: Path, *arguments: str) -> str:
    """Run the version of Pronk in a folder, and return what it printed."""
    command, env = [sys.executable, "-m", "pronk", *arguments], os.environ | {"PYTHONPATH": str(tree)}
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env, cwd=tree).stdout


if __name__ == "__main__":
    main()
