"""Pong from the prompt to 18, beside an earlier version: `python benchmarks/pong_beside.py --before CLONE`.

For each seed this version trains the preset until it calls it solved, with the whole machine for itself; then the
earlier version does. "Reached" is when the running mean of the training games was first at the goal: versions differ in
how they confirm that, so it is what can be compared. Without `--before`, only this version runs.

CLONE is a clone of the repository at the earlier commit: `git clone . CLONE && git -C CLONE checkout COMMIT`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
GOAL = 18.0  # the preset's run.stop_return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, metavar="CLONE")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], metavar="N")
    parser.add_argument("--minutes", type=float, default=40.0, help="interrupt a training after so long")
    parser.add_argument("--runs", type=Path, default=Path("runs/pong_beside"))
    options = parser.parse_args()
    trees = {"now": HERE.parent, "before": options.before and options.before.resolve()}
    print(
        "| seed | version | reached | ended | after | in | steps/s | mean return |\n|---|---|---|---|---|---|---|---|"
    )
    for seed in options.seeds:
        for version, tree in trees.items():
            if tree:
                run = options.runs / f"{version}-seed{seed}"
                train(tree, run, seed, 60 * options.minutes)
                print(row(seed, version, run), flush=True)


def train(tree: Path, run: Path, seed: int, seconds: float) -> None:
    """Train with the version in a folder, for at most so long."""
    command = [sys.executable, "-m", "pronk", "train", "pong", "--seed", str(seed), "--quiet"]
    environment = os.environ | {"PYTHONPATH": str(tree)}
    program = subprocess.Popen([*command, "--run-dir", str(run.absolute())], env=environment, cwd=tree)
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(seconds)
    finally:
        if program.poll() is None:
            program.send_signal(signal.SIGINT)  # it saves a checkpoint and ends its actors
            program.wait()


def row(seed: int, version: str, run: Path) -> str:
    summary = json.loads((run / "summary.json").read_text())
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    reached = next((line["wall_seconds"] for line in lines if (line["episode_return"] or -21) >= GOAL), None)
    return (
        f"| {seed} | {version} | {minutes(reached)} | {summary['outcome']} | {summary['env_steps']:,} steps "
        f"| {minutes(summary['wall_seconds'])} | {summary['env_steps'] / summary['wall_seconds']:,.0f} "
        f"| {summary['episode_return']:.1f} |"
    )


def minutes(seconds: float | None) -> str:
    return "-" if seconds is None else "{}:{:02}".format(*divmod(round(seconds), 60))


if __name__ == "__main__":
    main()
