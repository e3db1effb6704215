"""Pong from the prompt to 18, beside an earlier version: `python benchmarks/pong_beside.py --before CLONE`.

For each seed this version trains the preset until it reaches its goal, with the whole machine for itself. Then the
earlier version gets as many seconds, and is interrupted if it has not reached the goal by then: it is later, and its
return at that moment is printed. Without `--before`, only this version runs.

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
from typing import Any

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, metavar="CLONE")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], metavar="N")
    parser.add_argument("--minutes", type=float, default=40.0, help="interrupt a training after so long")
    parser.add_argument("--runs", type=Path, default=Path("runs/pong_beside"))
    options = parser.parse_args()
    print("| seed | version | ended | after | in | steps/s | mean return |\n|---|---|---|---|---|---|---|")
    for seed in options.seeds:
        summary = train(HERE.parent, options.runs / f"now-seed{seed}", seed, 60 * options.minutes)
        print(row(seed, "now", summary), flush=True)
        if options.before:
            tree, run = options.before.resolve(), options.runs / f"before-seed{seed}"
            print(row(seed, "before", train(tree, run, seed, summary["wall_seconds"])), flush=True)


def train(tree: Path, run: Path, seed: int, seconds: float) -> dict[str, Any]:
    """Train with the version in a folder, for at most so long. Returns the run's summary."""
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
    return json.loads((run / "summary.json").read_text())


def row(seed: int, version: str, summary: dict[str, Any]) -> str:
    minutes, seconds = divmod(round(summary["wall_seconds"]), 60)
    return (
        f"| {seed} | {version} | {summary['outcome']} | {summary['env_steps']:,} steps | {minutes}:{seconds:02} "
        f"| {summary['env_steps'] / summary['wall_seconds']:,.0f} | {summary['episode_return']:.1f} |"
    )


if __name__ == "__main__":
    main()
