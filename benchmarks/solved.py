"""Whether "solved" is true: `python benchmarks/solved.py --envs 64 128 256 512 --goals 475 --seeds 3`.

Each row is one `pronk train cartpole` that ends as solved, and one `pronk eval` of its last policy. The difference is
between `episode_return`, which stopped the run, and the mean of the evaluation; its standard error is that of the two
means. Prints a Markdown table; docs/results/cartpole.md holds one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pronk.metrics.returns import CONFIRMED

PRONK = [sys.executable, "-m", "pronk"]
EPISODES = 400  # of an evaluation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--envs", type=int, nargs="+", default=[64, 128, 256, 512])
    parser.add_argument("--goals", type=float, nargs="+", default=[475.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64, help="columns per update; an unroll has all environments")
    parser.add_argument("changes", nargs="*", help="settings, such as learner.batch_size=256")
    chosen = parser.parse_args()
    print("| environments | stop_return | seed | steps | episode_return | evaluation | difference | standard error |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for envs, goal, seed in itertools.product(chosen.envs, chosen.goals, range(1, chosen.seeds + 1)):
            sizes = [
                f"actors.envs={envs}",
                f"learner.batch_size={min(envs, chosen.batch)}",
                "run.total_steps=20_000_000",
            ]
            changes = [*sizes, f"run.stop_return={goal}", *chosen.changes]
            figures = row(envs, seed, changes, Path(folder) / f"{envs}-{goal}-{seed}")
            print(f"| {envs} | {goal:g} | {seed} {figures}", flush=True)


def row(envs: int, seed: int, changes: list[str], run: Path) -> str:
    train = [*PRONK, "train", "cartpole", *changes, "--seed", str(seed), "--quiet", "--run-dir", str(run)]
    subprocess.run(train, check=True)
    summary = json.loads((run / "summary.json").read_text())
    evaluate = [*PRONK, "eval", str(run), "--episodes", str(EPISODES), "--json"]
    played: dict[str, Any] = json.loads(subprocess.run(evaluate, check=True, capture_output=True, text=True).stdout)
    reported, mean = summary["episode_return"], played["mean"]
    error = played["std"] * math.sqrt(1 / EPISODES + 1 / max(envs, CONFIRMED))
    ended = "" if summary["outcome"] == "solved" else f" ({summary['outcome']})"
    return f"| {summary['env_steps']:,} | {reported:.1f}{ended} | {mean:.1f} | {mean - reported:+.1f} | {error:.1f} |"


if __name__ == "__main__":
    main()
