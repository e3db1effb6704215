"""What evaluation beside training costs: `python benchmarks/evaluator_cost.py`.

The same training with and without an evaluator, alternating, so that a noisy machine is equally noisy for both. The
evaluator is kept busy: an evaluation begins as soon as the last has ended. Prints trained steps/s of both, their ratio,
and the evaluator's share of the cores (its processor time / cores x wall time): the drop should not exceed the share.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pronk.config import available_cores

TICKS = os.sysconf("SC_CLK_TCK")
BUSY = ["--evaluate", "evaluation.every_seconds=0.001", "evaluation.final_seconds=0"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="cartpole")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=15.0, help="measured, of each training")
    parser.add_argument("--warm-up", type=float, default=10.0, help="seconds before that: everybody has started")
    options = parser.parse_args()
    ratios, shares, evaluations = [], [], 0
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(options.repeats):
            alone, _, _ = measure(Path(folder) / f"{repeat}-alone", options, [])
            beside, share, count = measure(Path(folder) / f"{repeat}-beside", options, BUSY)
            ratios.append(beside / alone)
            shares.append(share)
            evaluations += count
            print(
                f"alone {alone:>9,.0f} steps/s   with an evaluator {beside:>9,.0f} ({count} evaluations)   "
                f"ratio {ratios[-1]:.3f}   evaluator's share of {available_cores()} cores {share:.1%}",
                flush=True,
            )
    ratio, share = statistics.median(ratios), statistics.median(shares)
    print(f"median ratio {ratio:.3f}: a drop of {1 - ratio:.1%}, with a median share of {share:.1%}")


def measure(run: Path, options: argparse.Namespace, extra: list[str]) -> tuple[float, float, int]:
    """Steps/s between two instants of a training, the evaluator's share meanwhile, and how many it evaluated."""
    endless = ["run.total_steps=1e12", "run.stop_return=null", "optimiser.schedule=constant"]
    command = [sys.executable, "-m", "pronk", "train", options.preset, *endless, *extra, "--quiet"]
    training = subprocess.Popen([*command, "run.log_every_seconds=0.2", "--run-dir", str(run)])
    try:
        while not lines(run / "metrics.jsonl") or (extra and not lines(run / "eval.jsonl")):
            time.sleep(0.1)
            assert training.poll() is None, "it ended by itself"
        time.sleep(options.warm_up)
        began, busy, done = last(run), processor_seconds(run), len(lines(run / "eval.jsonl"))
        time.sleep(options.seconds)
        ended, busy, done = last(run), processor_seconds(run) - busy, len(lines(run / "eval.jsonl")) - done
    finally:
        training.terminate()
        training.wait()
    seconds = ended["wall_seconds"] - began["wall_seconds"]
    return (ended["env_steps"] - began["env_steps"]) / seconds, busy / seconds / available_cores(), done


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def last(run: Path) -> dict[str, float]:
    return json.loads((run / "metrics.jsonl").read_text().rpartition("\n")[0].rpartition("\n")[2])


def processor_seconds(run: Path) -> float:
    """Of the evaluator, from /proc; 0 where there is none."""
    log = run / "logs" / "evaluator.log"
    if not log.exists():
        return 0.0
    pid = log.read_text().partition("pid ")[2].partition(")")[0]
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


if __name__ == "__main__":
    main()
