"""How speed, memory and lag grow with the number of actors, environments, steps per unroll, weights and learners.

    python benchmarks/growth.py                                     measure what is not measured yet, about ten minutes
    python benchmarks/growth.py --table docs/results/growth.md      write the table and the figure from what there is

Each point is one `pronk train cartpole` with one setting changed. It is measured for --seconds, from the moment at
which every actor has delivered an unroll, and then ended with Ctrl-C. Steps/s and policy lag come from its
metrics.jsonl. CPU time per step is that of all its processes; other work on the machine changes it little, so it shows
a cliff where steps/s are too noisy to. Memory is the sum over all its processes at its highest (PSS, in which shared
memory counts once).

Every point appends a JSON line to --out. Points that are there already are skipped; one that failed is tried again.
The machine has to be idle otherwise. Linux only: memory is read from /proc.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from growth_table import write_page

from pronk.config import available_cores, load_config

PRESET = "cartpole"
BATCH = load_config(PRESET).learner.batch_size
LOG_SECONDS = 0.25
POLL_SECONDS = 0.2
SETTLE_SECONDS = 1.0  # after the last actor has delivered
LEAST_UPDATES = 4  # in a measurement: a large network may take seconds for each
START_SECONDS = 300  # at most, until all actors play: 64 processes take a while on a few cores
END_SECONDS = 120
UNENDING = ["run.stop_return=null", "run.total_steps=1e12", f"run.log_every_seconds={LOG_SECONDS}"]


class Dimension(NamedTuple):
    """One setting and the values that it is given, all others being the preset's."""

    values: tuple[int, ...]
    settings: Callable[[int], list[str]]


def layer_for(weights: int) -> int:
    """Return the width of two hidden layers, for policy and value each, that have about so many weights together."""
    width = 1
    while 2 * (width * width + 8 * width) < weights:
        width += 1
    return width


DIMENSIONS = {
    "actors": Dimension((1, 2, 4, 8, 16, 32, 64), lambda n: [f"actors.count={n}"]),
    # A batch has as many columns as the preset's, or as there are environments if these are fewer.
    "environments": Dimension(
        (1, 4, 16, 64, 256, 1024, 4096), lambda n: [f"actors.envs={n}", f"learner.batch_size={min(n, BATCH)}"]
    ),
    "unroll": Dimension((5, 10, 20, 50, 100, 200), lambda n: [f"actors.unroll_length={n}"]),
    "weights": Dimension(
        (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000),
        lambda n: [f"network.hidden=[{layer_for(n)},{layer_for(n)}]"],
    ),
    # The work is the same: four actors share the preset's environments, the learners share the batch.
    "learners": Dimension((1, 2, 4), lambda n: [f"learners.count={n}", "actors.count=4", "actors.envs=16"]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dimensions", nargs="*", default=list(DIMENSIONS), help=f"of {', '.join(DIMENSIONS)}")
    parser.add_argument("--seconds", type=float, default=8.0, help="that each point is measured")
    parser.add_argument("--out", type=Path, default=Path("docs/results/growth.jsonl"))
    parser.add_argument("--table", type=Path, help="only write this page, and a figure beside it, from --out")
    given = parser.parse_args()
    if unknown := [name for name in given.dimensions if name not in DIMENSIONS]:
        parser.error(f"no dimension {unknown[0]!r}; there are {', '.join(DIMENSIONS)}")
    if given.table:
        return write_page(given.table, read_points(given.out))
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that `measured` ends its training
    done = {(point["dimension"], point["value"]) for point in read_points(given.out) if "failed" not in point}
    for dimension in given.dimensions:
        for value in DIMENSIONS[dimension].values:
            if (dimension, value) not in done:
                point = measured(dimension, value, given.seconds)
                with open(given.out, "a", encoding="utf-8") as file:
                    file.write(json.dumps(point) + "\n")
                print(json.dumps(point), flush=True)


def read_points(path: Path) -> list[dict[str, Any]]:
    """Return all measured points; of one that was measured again, the last."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    points = [json.loads(line) for line in lines]
    return list({(point["dimension"], point["value"]): point for point in points}.values())


def measured(dimension: str, value: int, seconds: float) -> dict[str, Any]:
    """Train one point, and return its figures; if it fails, the cause."""
    settings = [*UNENDING, *DIMENSIONS[dimension].settings(value)]
    point = {"dimension": dimension, "value": value, "seconds": seconds, **machine()}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        run, log = Path(folder, "run"), Path(folder, "log")
        command = [sys.executable, "-m", "pronk", "train", PRESET, *settings, "--run-dir", str(run), "--quiet"]
        with open(log, "wb") as output:
            training = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        try:
            wait_until_all_play(training, run)
            starting = time.monotonic() - began
            figures = steady(training, run, seconds)
            return {**point, "started": round(starting, 1), **figures, "ended": round(ended(training), 1)}
        except RuntimeError as error:
            told = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            return {**point, "failed": " ".join([str(error), *told[-1:]])}
        finally:
            if training.poll() is None:
                os.killpg(training.pid, signal.SIGKILL)
                training.wait()


def machine() -> dict[str, Any]:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    return {"cores": available_cores(), "python": platform.python_version(), "commit": commit}


def wait_until_all_play(training: subprocess.Popen[bytes], run: Path) -> None:
    """Wait until every actor of every learner has delivered an unroll, and for a moment more."""
    deadline = time.monotonic() + START_SECONDS
    while not all_play(run):
        if training.poll() is not None:
            raise RuntimeError(f"it ended with code {training.returncode}:")
        if time.monotonic() > deadline:
            raise RuntimeError(f"not all actors play after {START_SECONDS} s;")
        time.sleep(POLL_SECONDS)
    time.sleep(SETTLE_SECONDS)


def all_play(run: Path) -> bool:
    """Return whether the status files of all learners show that each actor has delivered."""
    config = run / "config.yaml"
    if not config.exists():
        return False
    recorded = load_config(config)
    learners = 1 if recorded.learners.count == "auto" else recorded.learners.count
    files = list(run.glob("logs/**/actors.json"))
    unrolls = [actor["unrolls"] for file in files for actor in json.loads(file.read_text())["actors"]]
    return len(files) == learners and len(unrolls) == recorded.actors.count and all(unrolls)


def steady(training: subprocess.Popen[bytes], run: Path, seconds: float) -> dict[str, Any]:
    """Return steps/s, lag and memory, over `seconds` from now and at least so many updates."""
    before, memory, began = len(lines_of(run)), 0, time.monotonic()
    cpu = cpu_seconds(training.pid)
    while True:
        memory = max(memory, memory_of(training.pid))
        time.sleep(min(1.0, seconds / 2))
        lines = lines_of(run)[before:]
        if training.poll() is not None:
            raise RuntimeError(f"it ended with code {training.returncode}:")
        enough = lines and passed(lines, "updates") >= LEAST_UPDATES
        if enough and passed(lines, "wall_seconds") >= seconds - LOG_SECONDS:
            break
        if time.monotonic() - began > START_SECONDS + seconds:
            raise RuntimeError(f"fewer than {LEAST_UPDATES} updates in {START_SECONDS + seconds:.0f} s;")
    cpu, lines = cpu_seconds(training.pid) - cpu, lines_of(run)[max(0, before - 1) :]
    steps = [passed(list(pair), "env_steps") for pair in itertools.pairwise(lines)]
    lag = sum(line["policy_lag"] * weight for line, weight in zip(lines[1:], steps, strict=True)) / sum(steps)
    return {
        "steps_per_second": round(sum(steps) / passed(lines, "wall_seconds"), 1),
        "policy_lag": round(lag, 2),
        "cpu_microseconds": round(1e6 * cpu / sum(steps), 2),
        "memory_mib": round(memory / 2**20),
        "learner_waits": round(statistics.fmean(line["learner_waits"] for line in lines[1:]), 3),
        "updates": passed(lines, "updates"),
        "processes": len(list(tree_of(training.pid))),
    }


def passed(lines: list[dict[str, Any]], name: str) -> float:
    """Return by how much a counter has grown."""
    return lines[-1][name] - lines[0][name]


def lines_of(run: Path) -> list[dict[str, Any]]:
    path = run / "metrics.jsonl"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def ended(training: subprocess.Popen[bytes]) -> float:
    """Press Ctrl-C, and return the seconds until the command has ended."""
    began = time.monotonic()
    training.send_signal(signal.SIGINT)
    try:
        code = training.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"it had not ended {END_SECONDS} s after Ctrl-C;") from None
    if code != 128 + signal.SIGINT:
        raise RuntimeError(f"it ended with code {code} after Ctrl-C:")
    return time.monotonic() - began


def tree_of(pid: int) -> Iterator[int]:
    """Yield a process and its descendants."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in children:
            yield from tree_of(int(child))


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process and its descendants have used so far."""
    ticks = 0
    for each in tree_of(pid):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> int:
    """Return the memory of a process and its descendants in bytes; what they share counts once."""
    total = 0
    for each in tree_of(pid):
        try:
            text = Path(f"/proc/{each}/smaps_rollup").read_text()
        except OSError:  # it has just ended
            continue
        total += sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))
    return total


if __name__ == "__main__":
    main()
