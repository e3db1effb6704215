"""Predictions of `pronk plan` against real training: `python benchmarks/plan_accuracy.py --table docs/scale.md`.

For each configuration, by turns: measure its costs, predict its speed from them, then train for some seconds and
compare. A turn does all of this in one go, so that a slow moment of the machine affects both, and the ratio is taken
within it. Prints predicted and measured steps/s, their ratio, and both lags: medians over the turns. Needs a quiet
machine: beside other work the two halves of a turn get different shares of the cores, and the ratio says nothing.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pronk.config import available_cores, load_config
from pronk.config.machine import busy_cores
from pronk.planning.measuring import learner_config, measure_costs
from pronk.planning.search import Request, make_plan
from pronk.starting import train

CONFIGURATIONS: list[list[str]] = [
    ["cartpole"],
    ["cartpole", "actors.count=2", "actors.envs=256", "learner.batch_size=256"],
    ["pong"],
    ["catch"],
    ["cartpole", "transport=grpc"],
    ["cartpole", "actors.count=2", "learners.count=2"],
]
WARM_UP_SECONDS = 3.0  # after the first line of metrics
TOLERANCE = 0.15
BEGIN, END = "<!-- plan_accuracy.py writes from here -->", "<!-- to here -->"


class Turn(NamedTuple):
    """One prediction and one training, in steps/s and updates of lag."""

    predicted: float
    measured: float
    predicted_lag: float
    measured_lag: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="of training measured, each time")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the configurations, from 0")
    parser.add_argument("--table", type=Path, help="a page with a marked place; the table is written there")
    options = parser.parse_args()
    if (busy := busy_cores(1.0)) > 0.1:
        print(f"this machine is not quiet ({busy:.1f} cores busy): the ratios say little")
    chosen = [CONFIGURATIONS[number] for number in options.only] if options.only else CONFIGURATIONS
    turns: dict[int, list[Turn]] = {number: [] for number in range(len(chosen))}
    for _ in range(options.repeats):
        for number, arguments in enumerate(chosen):
            turns[number].append(turn := one_turn(arguments, options.seconds))
            print(f"{' '.join(arguments)}: {turn.predicted:,.0f} predicted, {turn.measured:,.0f} measured", flush=True)
    table = table_of([(arguments, turns[number]) for number, arguments in enumerate(chosen)], options)
    print(table)
    if options.table:
        write_between(options.table, table)


def one_turn(arguments: list[str], seconds: float) -> Turn:
    config = load_config(arguments[0], arguments[1:])
    resolved = learner_config(config, print)
    costs = measure_costs(resolved, max(1.0, seconds / 2), print, resolved.has_gateway, resolved.learners > 1)
    prediction = make_plan(resolved, costs, Request(cores=available_cores())).prediction
    measured, lag = trained(arguments, seconds)
    return Turn(prediction.steps_per_second, measured, prediction.lag, lag)


def trained(arguments: list[str], seconds: float) -> tuple[float, float]:
    """Train, and return steps/s and the mean lag after the warm-up."""
    limits: dict[str, Any] = {
        "run.stop_return": None,
        "run.total_steps": 10**12,
        "run.log_every_seconds": 0.2,
        "optimiser.schedule": "constant",
    }
    lines: list[dict[str, Any]] = []

    def look(line: dict[str, Any]) -> bool:
        lines.append(line)
        return line["wall_seconds"] < lines[0]["wall_seconds"] + WARM_UP_SECONDS + seconds

    with tempfile.TemporaryDirectory() as folder:
        config = load_config(arguments[0], arguments[1:]).replace(limits)
        train(config, run_dir=Path(folder) / "run", on_metrics=look)
    warm = [line for line in lines if line["wall_seconds"] >= lines[0]["wall_seconds"] + WARM_UP_SECONDS]
    if len(warm) < 2:
        raise SystemExit(f"too little was trained in that time: {' '.join(arguments)}; --seconds more")
    first, last = warm[0], warm[-1]
    rate = (last["env_steps"] - first["env_steps"]) / (last["wall_seconds"] - first["wall_seconds"])
    return rate, statistics.fmean(line["policy_lag"] for line in warm[1:])


def table_of(rows: Sequence[tuple[list[str], list[Turn]]], options: argparse.Namespace) -> str:
    lines = ["| configuration | predicted | measured | ratio | in the turns | lag predicted | lag measured |"]
    lines.append("|---|---|---|---|---|---|---|")
    within = 0
    for arguments, turns in rows:
        ratios = [turn.predicted / turn.measured for turn in turns]
        ratio = statistics.median(ratios)
        within += abs(ratio - 1) <= TOLERANCE
        predicted, measured, lag, measured_lag = map(statistics.median, zip(*turns, strict=True))
        each = ", ".join(f"{one:.2f}" for one in ratios)
        lines.append(
            f"| `{' '.join(arguments)}` | {predicted:,.0f} | {measured:,.0f} | {ratio:.2f} | {each} | {lag:.1f} | "
            f"{measured_lag:.1f} |"
        )
    machine = f"{available_cores()} cores, Python {platform.python_version()}, {platform.machine()}"
    lines.append("")
    lines.append(
        f"Steps/s and updates of lag; medians of {options.repeats} turns of {options.seconds:g} s; {machine}. "
        f"{within} of {len(rows)} are within {TOLERANCE:.0%}."
    )
    return "\n".join(lines)


def write_between(page: Path, text: str) -> None:
    """Replace what is between the two marks of a page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page} has no place for the table: {BEGIN} ... {END}")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
