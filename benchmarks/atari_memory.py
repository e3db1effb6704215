"""Memory of a whole training, sampled while it runs: `python benchmarks/atari_memory.py --envs 256 --minutes 20`.

Trains Pong with that many environments and adds up, every few seconds, the proportional set size (PSS: a page that is
shared by two processes counts half in each) of the learner and all processes under it. Prints a Markdown table. Linux.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ACTORS = 2
ROWS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--envs", type=int, default=256, help="over all actors")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("overrides", nargs="*", help="section.key=value")
    wanted = parser.parse_args()
    changes = [
        *(f"actors.count={ACTORS}", f"actors.envs={wanted.envs // ACTORS}", "run.stop_return=null"),
        *("run.total_steps=1_000_000_000_000", f"run.total_seconds={wanted.minutes * 60}", *wanted.overrides),
    ]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pronk", "train", "pong", "--quiet", "--run-dir", f"{folder}/run", *changes]
        samples = watch(subprocess.Popen(command))
    print(f"`pronk train pong {' '.join(changes)}`\n\n| minutes | processes | MiB |\n|---|---|---|")
    for minutes, processes, mib in samples[:: max(1, len(samples) // ROWS)] + samples[-1:]:
        print(f"| {minutes:.1f} | {processes} | {mib:,.0f} |")
    settled = [mib for minutes, _, mib in samples if minutes >= 1.0]
    if settled:
        print(f"\nAfter the first minute: {min(settled):,.0f} to {max(settled):,.0f} MiB.")


def watch(training: subprocess.Popen[bytes]) -> list[tuple[float, int, float]]:
    """(minutes, processes, MiB) until the training ends."""
    began, samples = time.monotonic(), []
    while training.poll() is None:
        sizes = [pss_mib(pid) for pid in family(training.pid)]
        samples.append(((time.monotonic() - began) / 60, len(sizes), sum(sizes)))
        time.sleep(5)
    if training.returncode:
        raise SystemExit(training.returncode)
    return samples[:-1]  # the last one may have caught it ending


def family(pid: int) -> list[int]:
    """The process and all under it."""
    try:  # any of its threads may have started a child
        children = [
            child for each in Path(f"/proc/{pid}/task").glob("*/children") for child in each.read_text().split()
        ]
    except OSError:
        return []
    return [pid, *(grandchild for child in children for grandchild in family(int(child)))]


def pss_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has just ended
        return 0.0
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


if __name__ == "__main__":
    main()
