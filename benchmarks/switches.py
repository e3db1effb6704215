"""What each switch of the learning is worth: `python benchmarks/switches.py`

Trains each environment at Pronk's defaults and with one switch at a time, several seeds each, and prints the mean
returns of the final policies. `+` and `-` mark differences from the defaults of more than two standard errors; the last
column counts them.

Every run has the same number of steps and one process (transport=local), so its result does not depend on the speed of
the machine, and as many run side by side as it has cores. What a switch costs in time is in the column of seconds: the
median over all runs of the ratio to the defaults with the same environment and seed.

Results are appended to a JSON-lines file, and what is in it is not run again. docs/results/switches.md has the table.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

SWITCHES: dict[str, tuple[str, ...]] = {
    "defaults": (),
    "LayerNorm": ("network.layer_norm=true",),
    "average pooling": ("network.pooling=average",),
    "HL-Gauss values": ("network.value=hl_gauss",),
    "weight decay 0.01": ("optimiser.weight_decay=0.01",),
    "UPGO": ("loss.upgo_cost=1",),
    "lambda 1": ("loss.lambda_=1",),
    "half the passes": (),  # these two: see `settings_of`
    "KL limit the other way": (),
}
PASSES = {"vectors": 4, "images": 2}  # instead of 8 and 3
REAL_VALUED = {"Hopper-v5"}  # actions: these have a limit of 0.02 by default, choices have none
# Steps: each is stopped in the middle of learning, where a switch can show.
VECTORS = {"LunarLander-v3": 250_000, "Hopper-v5": 100_000}
IMAGES = {"MinAtar/Asterix-v1": 200_000}
STEPS = VECTORS | IMAGES
EPISODES = 100


class Job(NamedTuple):
    """One run."""

    env: str
    switch: str
    seed: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", nargs="+", default=list(STEPS), choices=STEPS, metavar="ID")
    parser.add_argument("--switches", nargs="+", default=list(SWITCHES), choices=SWITCHES, metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[21, 22, 23], metavar="N")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs side by side")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent.parent / "docs/results/switches.jsonl")
    parser.add_argument("--runs", type=Path, default=Path("runs/switches"))
    parser.add_argument("--table", action="store_true", help="run nothing; only print what was measured")
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.results.read_text().splitlines()] if options.results.exists() else []
    done = {Job(row["env"], row["switch"], row["seed"]) for row in rows}
    # All switches of a seed one after another, so that a slow moment of the machine meets all of them.
    jobs = [Job(env, switch, seed) for seed in options.seeds for env in options.env for switch in options.switches]
    waiting = [] if options.table else [job for job in jobs if job not in done and has_effect(job)]
    with ThreadPoolExecutor(options.jobs) as threads:
        for row in threads.map(lambda job: measure(job, options.runs), waiting):
            rows.append(row)
            with options.results.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{row['env']} seed {row['seed']}, {row['switch']}: {row['return']:.4g}", flush=True)
    print(table(rows, options.env, options.switches))


def has_effect(job: Job) -> bool:
    """Vectors have no picture to take a mean over."""
    return job.switch != "average pooling" or job.env in IMAGES


def settings_of(job: Job) -> tuple[str, ...]:
    if job.switch == "half the passes":
        return (f"learner.passes={PASSES['images' if job.env in IMAGES else 'vectors']}",)
    if job.switch == "KL limit the other way":
        return (f"loss.max_kl={'null' if job.env in REAL_VALUED else 0.02}",)
    return SWITCHES[job.switch]


def measure(job: Job, runs: Path) -> dict[str, Any]:
    """Train and evaluate once."""
    folder = runs / "-".join([job.env, job.switch, str(job.seed)]).replace("/", "_").replace(" ", "_")
    pronk, steps = [sys.executable, "-m", "pronk"], f"run.total_steps={STEPS[job.env]}"
    where = ["--seed", str(job.seed), "--quiet", "--run-dir", str(folder)]
    subprocess.run([*pronk, "train", job.env, "transport=local", steps, *settings_of(job), *where], check=True)
    seconds = json.loads((folder / "summary.json").read_text())["wall_seconds"]
    evaluate = [*pronk, "eval", str(folder), "--json", "--episodes", str(EPISODES)]
    played = json.loads(subprocess.run(evaluate, check=True, capture_output=True, text=True).stdout)
    return job._asdict() | {"steps": STEPS[job.env], "return": played["mean"], "seconds": seconds}


def table(rows: list[dict[str, Any]], envs: list[str], switches: list[str]) -> str:
    """Render Markdown."""
    lines = ["| | " + " | ".join(envs) + " | better, worse | seconds |", "|---" * (len(envs) + 3) + "|"]
    for switch in switches:
        marks: Counter[str] = Counter()
        cells = []
        for env in envs:
            mine, default = (returns(rows, env, each) for each in (switch, "defaults"))
            marks[mark := compared(mine, default)] += 1
            cells.append(f"{statistics.fmean(mine):.4g} {mark}".strip() if mine else "-")
        lines.append(f"| {switch} | {' | '.join(cells)} | {marks['+']}, {marks['-']} | {cost(rows, switch)} |")
    return "\n".join(lines)


def returns(rows: list[dict[str, Any]], env: str, switch: str) -> list[float]:
    return [row["return"] for row in rows if row["env"] == env and row["switch"] == switch]


def compared(mine: list[float], default: list[float]) -> str:
    if min(len(mine), len(default)) < 2:
        return ""
    difference = statistics.fmean(mine) - statistics.fmean(default)
    error = math.sqrt(sum(statistics.variance(each) / len(each) for each in (mine, default)))
    return "" if abs(difference) <= 2 * error else "+" if difference > 0 else "-"


def cost(rows: list[dict[str, Any]], switch: str) -> str:
    usual = {(row["env"], row["seed"]): row["seconds"] for row in rows if row["switch"] == "defaults"}
    mine = [row for row in rows if row["switch"] == switch and (row["env"], row["seed"]) in usual]
    ratios = [row["seconds"] / usual[row["env"], row["seed"]] for row in mine]
    return f"x{statistics.median(ratios):.2f}" if ratios else "-"


if __name__ == "__main__":
    main()
