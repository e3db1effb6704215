"""What each switch of the learning is worth: `python benchmarks/switches.py --seconds 60`

Trains each environment at Pronk's defaults and with one switch at a time, several seeds each, and prints the mean
returns of the final policies. `+` and `-` mark differences from the defaults of more than two standard errors; the last
row counts them. Results are appended to a JSON-lines file, and what is in it is not run again. Run nothing else
meanwhile. docs/results/switches.md has the table that the defaults were chosen by.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from against_sb3 import Job, measure, read

SWITCHES: dict[str, tuple[str, ...]] = {
    "defaults": (),
    "LayerNorm": ("network.layer_norm=true",),
    "average pooling": ("network.pooling=average",),
    "HL-Gauss values": ("network.value=hl_gauss",),
    "weight decay 0.01": ("optimiser.weight_decay=0.01",),
    "UPGO": ("loss.upgo_cost=1",),
    "lambda 1": ("loss.lambda_=1",),
    "one pass": ("learner.passes=1",),
    "four passes": ("learner.passes=4",),
    "no PopArt": ("network.popart=false",),
    "no normalisation": ("network.normalise=false",),
    "IMPALA's loss": ("loss=impala", "learner.passes=1"),
}
ENVIRONMENTS = ("LunarLander-v3", "BipedalWalker-v3", "MinAtar/Asterix-v1", "MiniGrid-LavaGapS5-v0")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", nargs="+", default=list(ENVIRONMENTS), metavar="ID")
    parser.add_argument("--switches", nargs="+", default=list(SWITCHES), choices=SWITCHES, metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[21, 22, 23], metavar="N")
    parser.add_argument("--seconds", type=float, default=60.0, help="of training, per run")
    parser.add_argument("--results", type=Path, default=Path("switches.jsonl"))
    parser.add_argument("--runs", type=Path, default=Path("runs/switches"))
    parser.add_argument("--pronk-python", default=sys.executable, help="a Python that has Pronk and the environments")
    options = parser.parse_args()
    rows = read(options.results)
    for env in options.env:
        for seed in options.seeds:
            for name in options.switches:  # in turn, so that a slow moment of the machine meets all of them
                job = Job(env, "pronk", seed, options.seconds, SWITCHES[name])
                if job in {Job.of(row) for row in rows} or (row := measure(options, True, job)) is None:
                    continue
                rows.append(row)
                with options.results.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(f"{env} seed {seed} {name}: {row['sampled']['mean']:.4g}", flush=True)
    print(table([row for row in rows if row["seconds"] == options.seconds], options.env, options.switches))


def table(rows: list[dict[str, Any]], envs: list[str], switches: list[str]) -> str:
    lines = ["| | " + " | ".join(envs) + " | better, worse |", "|---" * (len(envs) + 2) + "|"]
    for name in switches:
        marks: Counter[str] = Counter()
        cells = []
        for env in envs:
            mine, default = (returns(rows, env, SWITCHES[each]) for each in (name, "defaults"))
            marks[mark := compared(mine, default)] += 1
            cells.append(f"{statistics.fmean(mine):.4g} {mark}".strip() if mine else "")
        lines.append(f"| {name} | {' | '.join(cells)} | {marks['+']}, {marks['-']} |")
    return "\n".join(lines)


def returns(rows: list[dict[str, Any]], env: str, overrides: tuple[str, ...]) -> list[float]:
    return [row["sampled"]["mean"] for row in rows if row["env"] == env and tuple(row["overrides"]) == overrides]


def compared(mine: list[float], default: list[float]) -> str:
    if min(len(mine), len(default)) < 2:
        return ""
    difference = statistics.fmean(mine) - statistics.fmean(default)
    error = math.sqrt(sum(statistics.variance(each) / len(each) for each in (mine, default)))
    return "" if abs(difference) <= 2 * error else "+" if difference > 0 else "-"


if __name__ == "__main__":
    main()
