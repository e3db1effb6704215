"""Pong at 18, this version beside an earlier one: `python benchmarks/pong_beside.py --before CLONE`.

Both train the preset with the same seed at the same time, each on a core of its own with one actor, so a slow moment of
the machine meets both. A version is there when the mean return of its recent games first reaches the goal. When this
version is, the pair ends; if the earlier one is not there by then, it is later, and its return at that moment is printed.

CLONE is a clone of the repository at the earlier commit: `git clone . CLONE && git -C CLONE checkout COMMIT`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
GOAL = 18.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, metavar="CLONE")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], metavar="N")
    parser.add_argument("--minutes", type=float, default=40.0, help="end a pair after so long")
    parser.add_argument("--runs", type=Path, default=Path("runs/pong_beside"))
    options = parser.parse_args()
    print(f"| seed | version | {GOAL:g} reached after | in | else: mean return | after |")
    print("|---|---|---|---|---|---|")
    for seed in options.seeds:
        trees = {"now": HERE.parent, "before": options.before.resolve()}
        runs = {version: (options.runs / f"{version}-seed{seed}").absolute() for version in trees}
        pair(trees, runs, seed, 60 * options.minutes)
        for version, run in runs.items():
            print(row(seed, version, lines(run)), flush=True)


def pair(trees: dict[str, Path], runs: dict[str, Path], seed: int, seconds: float) -> None:
    """Train both versions side by side until this one reaches the goal, or the time is over."""
    programs = []
    try:
        for core, (version, tree) in enumerate(trees.items()):
            settings = ["actors.count=1", "run.stop_return=null", "--seed", str(seed), "--quiet"]
            programs.append(
                subprocess.Popen(
                    ["taskset", "-c", str(core), sys.executable, "-m", "pronk", "train", "pong", *settings]
                    + ["--run-dir", str(runs[version])],
                    env=os.environ | {"PYTHONPATH": str(tree)},
                    cwd=tree,
                )
            )
        began = time.monotonic()
        while time.monotonic() - began < seconds and reached(lines(runs["now"])) is None:
            if any(program.poll() is not None for program in programs):
                raise SystemExit(f"a training has ended; see the logs of {runs}")
            time.sleep(2.0)
    finally:
        for program in programs:
            program.send_signal(signal.SIGINT)  # it saves a checkpoint and ends its actor
        for program in programs:
            program.wait()


def lines(run: Path) -> list[dict[str, Any]]:
    """Return the metrics of a run, without a last line that is not complete yet."""
    file = run / "metrics.jsonl"
    text = file.read_text() if file.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def reached(metrics: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the first line at the goal."""
    return next((line for line in metrics if (line["episode_return"] or -21.0) >= GOAL), None)


def row(seed: int, version: str, metrics: list[dict[str, Any]]) -> str:
    def when(line: dict[str, Any]) -> tuple[str, str]:
        minutes, seconds = divmod(round(line["wall_seconds"]), 60)
        return f"{line['env_steps']:,} steps", f"{minutes}:{seconds:02}"

    if line := reached(metrics):
        return f"| {seed} | {version} | {' | '.join(when(line))} | | |"
    return f"| {seed} | {version} | | | {metrics[-1]['episode_return']:.1f} | {', '.join(when(metrics[-1]))} |"


if __name__ == "__main__":
    main()
