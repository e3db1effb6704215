"""How much faster a sweep is than its runs one after the other: `python benchmarks/sweep_speed.py --runs 20`.

Both sides train the same members (CartPole, a fixed number of steps, seeds 1 to N) from the shell prompt, start-up
included: `pronk train` one after the other as a shell loop would, and `pronk sweep` with `at_a_time` left to Pronk.
Prints a Markdown table.
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
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--base", default="cartpole")
    parser.add_argument("settings", nargs="*", help="more settings of all members, such as transport=local")
    given = parser.parse_args()
    print(f"{platform.machine()}, {available_cores()} cores, Python {platform.python_version()}\n")
    fixed = [f"run.total_steps={given.steps}", "run.stop_return=null", *given.settings]
    with tempfile.TemporaryDirectory() as folder:
        swept, at_a_time = sweep(Path(folder), given.base, fixed, given.runs)
        alone = one_by_one(Path(folder), given.base, fixed, given.runs)
    print(f"| {given.runs} runs of {given.base}, {given.steps:,} steps each | seconds | runs per minute |")
    print("|---|---|---|")
    print(f"| one after the other | {alone:.1f} | {60 * given.runs / alone:.1f} |")
    print(f"| `pronk sweep`, {at_a_time} at a time | {swept:.1f} | {60 * given.runs / swept:.1f} |")


def sweep(folder: Path, base: str, fixed: list[str], runs: int) -> tuple[float, int]:
    """Return the seconds of a sweep, and how many members it ran at a time."""
    lines = [f"base: {base}", *(setting.replace("=", ": ", 1) for setting in fixed), f"sweep: {{seeds: {runs}}}"]
    file = folder / "speed.yaml"
    file.write_text("\n".join(lines) + "\n")
    began = time.perf_counter()
    subprocess.run([*PRONK, "sweep", str(file), "--quiet", "--run-dir", str(folder / "sweep")], check=True)
    seconds = time.perf_counter() - began
    return seconds, json.loads((folder / "sweep/sweep.json").read_text())["at_a_time"]


def one_by_one(folder: Path, base: str, fixed: list[str], runs: int) -> float:
    began = time.perf_counter()
    for seed in range(1, runs + 1):
        run = folder / f"alone-{seed}"
        subprocess.run(
            [*PRONK, "train", base, *fixed, "--seed", str(seed), "--quiet", "--run-dir", str(run)], check=True
        )
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
