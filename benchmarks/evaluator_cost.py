"""What evaluation beside training costs: `python benchmarks/evaluator_cost.py`.

One training with an evaluator that is kept busy: an evaluation begins as soon as the last has ended. The evaluator is
stopped and let go on (SIGSTOP, SIGCONT) every other second or two, so that both halves of a pair meet the same machine,
however noisy. Prints trained steps/s with and without it, the median ratio of the pairs with its 95% interval, and the
evaluator's share of the cores while it ran: the drop should not exceed the share.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from pronk.config import available_cores

TICKS = os.sysconf("SC_CLK_TCK")
SETTLE = 0.2  # seconds after a switch that are not measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="cartpole")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each half of a pair")
    options = parser.parse_args()
    rates: dict[bool, list[float]] = {True: [], False: []}
    used = wall = 0.0
    with tempfile.TemporaryDirectory() as folder, training(Path(folder) / "run", options.preset) as (run, evaluator):
        before = len(lines(run / "eval.jsonl"))
        for _ in range(options.pairs):
            for plays in random.sample([True, False], 2):
                os.kill(evaluator, signal.SIGCONT if plays else signal.SIGSTOP)
                time.sleep(SETTLE)
                busy, began = processor_seconds(evaluator), time.monotonic()
                rates[plays].append(trained(run, options.seconds))
                if plays:
                    used, wall = used + processor_seconds(evaluator) - busy, wall + time.monotonic() - began
        count = len(lines(run / "eval.jsonl")) - before
    ratios = [beside / alone for beside, alone in zip(rates[True], rates[False], strict=True)]
    low, high = interval(ratios)
    share = used / wall / available_cores()
    alone, beside = statistics.median(rates[False]), statistics.median(rates[True])
    print(f"{options.pairs} pairs of {options.seconds:g} s on {available_cores()} cores; {count} evaluations")
    print(f"alone {alone:,.0f} steps/s, with the evaluator {beside:,.0f}")
    print(f"ratio {statistics.median(ratios):.3f} (95% interval of the median {low:.3f} to {high:.3f})")
    print(f"drop {1 - statistics.median(ratios):.1%}; the evaluator's share of the cores {share:.1%}")


@contextlib.contextmanager
def training(run: Path, preset: str) -> Iterator[tuple[Path, int]]:
    """A training without an end, once it has been evaluated for the first time; and the evaluator's process."""
    endless = ["run.total_steps=1e12", "run.stop_return=null", "optimiser.schedule=constant"]
    busy = ["--evaluate", "evaluation.every_seconds=0.001", "run.log_every_seconds=0.05"]
    command = [sys.executable, "-m", "pronk", "train", preset, *endless, *busy, "--quiet", "--run-dir", str(run)]
    process = subprocess.Popen(command)
    try:
        while not lines(run / "eval.jsonl"):
            time.sleep(0.1)
            assert process.poll() is None, "it ended by itself"
        yield run, int((run / "logs" / "evaluator.log").read_text().partition("pid ")[2].partition(")")[0])
    finally:
        process.terminate()
        process.wait()


def trained(run: Path, seconds: float) -> float:
    """Steps/s from now on, for so long."""
    began = last(run)
    time.sleep(seconds)
    ended = last(run)
    return (ended["env_steps"] - began["env_steps"]) / (ended["wall_seconds"] - began["wall_seconds"])


def interval(values: list[float], draws: int = 2000) -> tuple[float, float]:
    """Of the median, by drawing again."""
    medians = sorted(statistics.median(random.choices(values, k=len(values))) for _ in range(draws))
    return medians[draws // 40], medians[-draws // 40]


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def last(run: Path) -> dict[str, float]:
    return json.loads((run / "metrics.jsonl").read_text().rpartition("\n")[0].rpartition("\n")[2])


def processor_seconds(pid: int) -> float:
    """That a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


if __name__ == "__main__":
    main()
