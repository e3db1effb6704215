"""Pronk and its peers at the same work, in alternating rounds: `python -m benchmarks.peers.run FOLDER`.

FOLDER has the virtual environments that `benchmarks.peers.install` made. A round is one run of every peer, one after
the other, Pronk among them, so that a slow moment of the machine meets all of them; ratios are taken within a round.
Run nothing else meanwhile. Every run is a program of its own. Memory is sampled from outside: the proportional set size
of the program and all processes under it, once a second.

Each result is appended to a JSON-lines file at once, and what is in it is not run again: stop whenever you like, and
continue with the same command. A run that failed is noted, too, and is tried again.

    python -m benchmarks.peers.run peers                                       # cartpole, solve and pong; five rounds
    python -m benchmarks.peers.run peers --works cartpole --envs 256           # with more environments
    python -m benchmarks.peers.run peers --works pong --peers pronk torchbeast --rounds 3 --seconds 20
    python -m benchmarks.peers.run peers --works halfcheetah --rounds 1        # five minutes each
    python -m benchmarks.peers.table                                           # then: docs/results/peers.md
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from against_sb3 import commit, environment, machine, read
from atari_memory import family, pss_mib

from .base import DRIVERS, HERE, PEERS, WORKS

RESULTS = HERE.parent.parent / "docs/results/peers.jsonl"
CHEETAH_SECONDS = 300.0


class Job(NamedTuple):
    """One run. Two with equal fields are the same experiment."""

    work: str
    peer: str
    round: int
    """Also the seed."""
    seconds: float
    """To measure (cartpole, pong), to train (halfcheetah), or after which to give up (solve)."""
    envs: int | None
    """cartpole: how many environments; None elsewhere."""

    @classmethod
    def of(cls, row: dict[str, Any]) -> Job:
        return cls(row["work"], row["peer"], row["round"], row["seconds"], row["job_envs"])


def main() -> None:
    options = parse()
    done = {Job.of(row) for row in read(options.results) if "failure" not in row}
    waiting = [job for job in jobs(options) if job not in done]
    print(f"{len(waiting)} runs", flush=True)
    for job in waiting:
        row = measure(job, options)
        with options.results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{describe(job)}: {told(row)}", flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the virtual environments are")
    parser.add_argument("--works", nargs="+", choices=WORKS, default=["cartpole", "solve", "pong"], metavar="WORK")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), metavar="PEER", help=", ".join(PEERS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="to measure, for cartpole and pong")
    parser.add_argument("--warmup", type=float, default=3.0, help="seconds between the first update and measuring")
    parser.add_argument("--limit", type=float, default=60.0, help="solve: give up after so many seconds")
    parser.add_argument("--cheetah-seconds", type=float, default=CHEETAH_SECONDS, help="halfcheetah: to train")
    parser.add_argument("--envs", type=int, default=64, help="cartpole: environments, for everybody")
    parser.add_argument(
        "--patience",
        type=float,
        default=300.0,
        help="seconds for start-up, evaluation and ending; then a run is killed",
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="results are appended here")
    return parser.parse_args()


def jobs(options: argparse.Namespace) -> Iterator[Job]:
    """All runs in order: per work and round, the peers in turn."""
    lengths = {"solve": options.limit, "halfcheetah": options.cheetah_seconds}
    for work in options.works:
        for number in range(1, options.rounds + 1):
            for name in options.peers:
                if work in PEERS[name].works:
                    envs = options.envs if work == "cartpole" else None
                    yield Job(work, name, number, lengths.get(work, options.seconds), envs)


def measure(job: Job, options: argparse.Namespace) -> dict[str, Any]:
    """Run a peer once. What went wrong is in the row as `failure`."""
    load = os.getloadavg()[0]
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    facts = {"date": date, "machine": machine(), "load": load, "commit": commit()}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as errors:
        try:
            output, memory = run(
                command(job, options, folder), folder, job.seconds + options.warmup + options.patience, errors
            )
            found = json.loads(output.strip().splitlines()[-1]) | {"peak_mib": round(memory)}
        except (RuntimeError, FileNotFoundError, json.JSONDecodeError, IndexError) as error:
            errors.seek(0)
            last = [line.strip() for line in errors if line.strip()][-1:]
            found = {"failure": " | ".join([str(error), *last])[-500:]}
    return (
        {"job_envs": job.envs} | {key: value for key, value in job._asdict().items() if key != "envs"} | found | facts
    )


def command(job: Job, options: argparse.Namespace, folder: str) -> list[str]:
    peer = PEERS[job.peer]
    python = sys.executable if peer.venv is None else str(options.folder.absolute() / peer.venv.name / "bin/python")
    numbers = {"seed": job.round, "seconds": job.seconds, "warmup": options.warmup, "limit": options.limit}
    if job.envs is not None:
        numbers["envs"] = job.envs
    if peer.venv and peer.venv.checkout:
        numbers["checkout"] = options.folder.absolute() / f"{peer.venv.checkout.name}-checkout"
    numbers |= {"folder": folder, "began": time.monotonic()}
    flags = [text for name, value in numbers.items() for text in (f"--{name}", str(value))]
    return [python, str(DRIVERS / peer.driver), *peer.arguments, job.work, *flags]


def run(command: list[str], folder: str, limit: float, errors: Any) -> tuple[str, float]:
    """Run a program to its end and return what it printed, and its peak memory in MiB with that of its children."""
    variables = environment() | {"PYTHONPATH": str(HERE.parent.parent) if command[0] == sys.executable else ""}
    with tempfile.TemporaryFile("w+") as output:
        child = subprocess.Popen(
            command, stdout=output, stderr=errors, env=variables, cwd=folder, start_new_session=True
        )
        began, peak = time.monotonic(), 0.0
        try:
            while child.poll() is None and time.monotonic() - began < limit:
                peak = max(peak, sum(map(pss_mib, family(child.pid))))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(timeout=1.0)
            if child.poll() is None:
                raise RuntimeError(f"not done after {limit:.0f} s")
        finally:  # whatever it leaves behind
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if child.returncode:
            raise RuntimeError(f"exit code {child.returncode}")
        output.seek(0)
        return output.read(), peak


def describe(job: Job) -> str:
    return f"{job.work} {job.peer} round {job.round}"


def told(row: dict[str, Any]) -> str:
    if "failure" in row:
        return f"FAILED: {row['failure']}"
    if "steps_per_second" in row:
        return f"{row['steps_per_second']:,.0f} steps/s, {row['peak_mib']:,} MiB, start-up {row['startup_seconds']} s"
    if "evaluation" in row:
        return f"{row['solve_seconds']} s, evaluation {max(row['evaluation'].values()):.1f}, {row['steps']:,} steps"
    return f"return {row['return']:.0f} after {row['steps']:,} steps"


if __name__ == "__main__":
    main()
