"""A soak: CartPole with evaluation, and Pong, side by side for two hours. Does anything grow that should not?

    python benchmarks/soak.py --minutes 120

Every 10 s the memory (PSS: a page that two processes share counts half in each), descriptors and threads of every
process of both runs are sampled, and the speed of learners and actors. Samples go to a file of JSON lines at once. At
the end a line is fitted to each quantity of each process (soak_slopes.py), and a page with a table and a picture is
written. The exit code is 1 if a slope is not zero beyond its error and large enough to matter, if a process was
restarted, or if a run failed. `--analyse FILE` only writes the page, from the samples of an earlier or unfinished soak.
Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from atari_memory import family, pss_mib
from soak_slopes import QUANTITIES, Slope, fit

ENDLESS = ("run.stop_return=null", "run.total_steps=1_000_000_000_000_000")
RUNS = {"cartpole": ("cartpole", "--evaluate"), "pong": ("pong",)}
Sample = dict[str, Any]


def main() -> None:
    """Train, sample, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two samples")
    parser.add_argument("--settle", type=float, default=10.0, help="first minutes that are left out of the fits")
    parser.add_argument("--only", choices=RUNS, help="one of the runs, instead of both side by side")
    parser.add_argument("--folder", type=Path, default=Path("runs/soak"), help="of the runs and the samples")
    parser.add_argument("--page", type=Path, default=Path("docs/results/soak.md"), help="the picture is beside it")
    parser.add_argument("--analyse", type=Path, metavar="FILE", help="samples to analyse instead of training")
    options = parser.parse_args()
    good = True
    samples = options.analyse or options.folder / "soak.jsonl"
    if not options.analyse:
        good = soak(options, samples)
    lines = [json.loads(line) for line in samples.read_text(encoding="utf-8").splitlines()]
    text, steady = report(lines, options)
    options.page.parent.mkdir(parents=True, exist_ok=True)
    options.page.write_text(text, encoding="utf-8")
    draw(lines, options.page.with_suffix(".png"))
    print(text)
    sys.exit(0 if good and steady else 1)


def soak(options: argparse.Namespace, samples: Path) -> bool:
    """Train and write the samples. Returns whether every run ended well."""
    if samples.exists():
        raise SystemExit(f"{samples} exists: analyse it (--analyse), remove it, or choose another --folder")
    options.folder.mkdir(parents=True, exist_ok=True)
    trainings: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, arguments in RUNS.items():
            if options.only in (None, name):
                command = [sys.executable, "-m", "pronk", "train", *arguments, *ENDLESS, "--quiet"]
                command += [f"run.total_seconds={60 * options.minutes}", "--run-dir", str(options.folder / name)]
                trainings[name] = subprocess.Popen(command)
        began = time.monotonic()
        with open(samples, "w", encoding="utf-8") as file:
            while all(training.poll() is None for training in trainings.values()):
                for name, training in trainings.items():
                    for sample in sampled(name, options.folder / name, training.pid):
                        file.write(json.dumps({"seconds": round(time.monotonic() - began, 1), **sample}) + "\n")
                file.flush()
                time.sleep(options.every)
        return [training.wait() for training in trainings.values()] == [0] * len(trainings)
    finally:
        for training in trainings.values():  # only after an error or Ctrl-C
            if training.poll() is None:
                training.terminate()
                training.wait()


def sampled(name: str, run: Path, pid: int) -> list[Sample]:
    """One sample of each process of a run that is up."""
    roles = {**processes_of(run), pid: "learner"}
    speeds = speeds_of(run)
    found = []
    for number in family(pid):
        sample = {"run": name, "process": roles.get(number, "other"), "pid": number}
        with contextlib.suppress(OSError, StopIteration):  # it has just ended
            status = Path(f"/proc/{number}/status").read_text()
            threads = int(re.search(r"Threads:\s+(\d+)", status)[1])  # type: ignore[index]
            descriptors = len(list(Path(f"/proc/{number}/fd").iterdir()))
            sample |= {"pss_mib": round(pss_mib(number), 3), "descriptors": descriptors, "threads": threads}
            if (speed := speeds.get(sample["process"])) is not None:
                sample["steps_per_second"] = speed
            found.append(sample)
    return found


def processes_of(run: Path) -> dict[int, str]:
    """Process ids of a run's children, by the last start that each log has: `actor-000`, `evaluator`."""
    found = {}
    for log in sorted((run / "logs").glob("*.log")):
        started = re.findall(r"starts \(life \d+, pid (\d+)\)", log.read_text(errors="replace"))
        found.update({int(pid): log.stem for pid in started[-1:]})
    return found


def speeds_of(run: Path) -> dict[str, float]:
    """Steps/s of the learner, from the newest line of metrics, and of each actor."""
    speeds: dict[str, float] = {}
    with contextlib.suppress(OSError, ValueError, KeyError, IndexError):
        with open(run / "metrics.jsonl", "rb") as file:
            file.seek(max(0, file.seek(0, 2) - (1 << 16)))
            speeds["learner"] = json.loads(file.read().splitlines()[-1])["steps_per_second"]
        for actor in json.loads((run / "logs" / "actors.json").read_text())["actors"]:
            if actor["steps_per_second"] is not None:
                speeds[f"actor-{actor['actor']:03d}"] = actor["steps_per_second"]
    return speeds


def report(lines: list[Sample], options: argparse.Namespace) -> tuple[str, bool]:
    """Return the page, and whether nothing grows or falls that should not and no process was restarted."""
    series: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
    pids: dict[tuple[str, str], set[int]] = defaultdict(set)
    for line in lines:
        pids[line["run"], line["process"]].add(line["pid"])
        if line["seconds"] >= 60 * options.settle:
            for name in QUANTITIES.keys() & line.keys():
                series[line["run"], line["process"], name].append((line["seconds"], line[name]))
    hours = max((line["seconds"] for line in lines), default=0.0) / 3600
    rows, steady = "", True
    for (run, process, name), points in sorted(series.items()):
        slope = fit(*zip(*points, strict=True))
        steady &= slope is not None and not slope.is_bad(QUANTITIES[name])
        rows += row(run, process, name, slope)
    # "other" are helpers that come and go, such as the one that probes the environment.
    again = [
        f"{run}: {process}" for (run, process), seen in sorted(pids.items()) if process != "other" and len(seen) > 1
    ]
    restarts = f"Restarted: {', '.join(again)}." if again else "No process was restarted."
    command = f"python benchmarks/soak.py --minutes {options.minutes:g} --settle {options.settle:g}"
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}, Python {platform.python_version()}"
    return PAGE.format(
        hours=hours, rows=rows, restarts=restarts, command=command, machine=machine
    ), steady and not again


PAGE = """# Soak

`pronk train cartpole --evaluate` and `pronk train pong`, both without a goal, side by side for {hours:.2f} hours.
Memory is the proportional set size: a page that two processes share counts half in each.

| run | process | quantity | mean | slope per hour | standard error | verdict |
|---|---|---|---:|---:|---:|---|
{rows}
{restarts}

A slope is fitted through the means of 20 blocks of samples. Its error allows for what neighbouring blocks have in
common. *zero*: it differs from zero by less than four standard errors. *small*: it differs, in the harmless direction
or by too little to matter (2% of the memory, one descriptor or thread, 5% of the speed, in an hour).

![memory, descriptors, threads and speed over time](soak.png)

Command: `{command}`. Machine: {machine}.
"""


def row(run: str, process: str, name: str, slope: Slope | None) -> str:
    """A line of the table."""
    if slope is None:
        return f"| {run} | {process} | {QUANTITIES[name].name} | | | | too few samples |\n"
    verdict = "zero" if slope.is_zero else "**not steady**" if slope.is_bad(QUANTITIES[name]) else "small"
    numbers = f"{slope.mean:,.1f} | {slope.per_hour:+,.3g} | {slope.error:,.2g}"
    return f"| {run} | {process} | {QUANTITIES[name].name} | {numbers} | {verdict} |\n"


def draw(lines: list[Sample], target: Path) -> None:
    """A panel for each quantity and run, a line for each process."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    runs = sorted({line["run"] for line in lines})
    figure, axes = plt.subplots(
        len(QUANTITIES), len(runs), figsize=(5 * len(runs), 8), sharex=True, squeeze=False, layout="constrained"
    )
    for column, run in enumerate(runs):
        for panel, (name, quantity) in zip(axes[:, column], QUANTITIES.items(), strict=True):
            for process in sorted({line["process"] for line in lines if line["run"] == run}):
                chosen = [one for one in lines if (one["run"], one["process"]) == (run, process) and name in one]
                if chosen and process != "other":
                    panel.plot([one["seconds"] / 60 for one in chosen], [one[name] for one in chosen], label=process)
            panel.set_title(f"{run}: {quantity.name}", fontsize=9)
            panel.set_ylim(bottom=0)
        axes[0, column].legend(fontsize=7)
        axes[-1, column].set_xlabel("minutes")
    figure.savefig(target, dpi=100)


if __name__ == "__main__":
    main()
