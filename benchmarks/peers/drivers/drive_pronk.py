"""Pronk, as a user runs it: `pronk train` with a preset, and what its metrics.jsonl says.

CartPole is the preset; for throughput it goes on instead of stopping when it is solved. Pong is the preset, too, but
with the network and the frames of the others and nothing normalised, as the other IMPALAs have it. HalfCheetah is the
preset.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measuring import Meter, Task, parse, print_result, report

PRONK = [sys.executable, "-m", "pronk"]
POLL = 0.05  # seconds between two looks at metrics.jsonl
PACKAGES = ("pronk", "gymnasium", "torch")
PAPER = (
    *("loss.name=impala", "loss.lambda_=1", "learner.passes=1", "learner.batch_size=16"),
    *("actors.envs=16", "actors.unroll_length=20"),
    *("network.popart=false", "network.layer_norm=false", "network.standardise=false"),
)
UNLIMITED = ("run.stop_return=null", "run.total_steps=1_000_000_000_000")


def main() -> None:
    task = parse()
    run = task.folder / "run"
    command = [*PRONK, "train", *settings(task), "--seed", str(task.seed), "--quiet", "--run-dir", str(run)]
    training = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    if task.work == "solve":
        solve(task, training, run)
    else:
        measure(task, training, run)


def settings(task: Task) -> list[str]:
    if task.work == "cartpole":
        return ["cartpole", *UNLIMITED, f"actors.envs={task.envs}", f"learner.batch_size={task.envs}"]
    if task.work == "solve":
        return ["cartpole"]
    if task.work == "pong":
        return ["pong", *UNLIMITED, *PAPER, "network.torso=nature", "env.atari.size=84"]
    return ["halfcheetah", "run.total_steps=1_000_000_000_000", f"run.total_seconds={task.seconds}"]


def measure(task: Task, training: subprocess.Popen[bytes], run: Path) -> None:
    """Follow the metrics until the meter has enough. HalfCheetah ends by itself: its schedule is that of its time."""
    meter, offset = Meter(task), None
    for line in lines(run / "metrics.jsonl", training):
        offset = time.monotonic() - line["wall_seconds"] if offset is None else offset
        if line.get("episode_return") is not None:  # the mean over the environments of their last episodes
            meter.averaged(line["episode_return"])
        if meter.updated(line["env_steps"], at=offset + line["wall_seconds"]) and task.work != "halfcheetah":
            training.send_signal(signal.SIGINT)
            break
    training.wait()
    report(meter, PACKAGES)


def solve(task: Task, training: subprocess.Popen[bytes], run: Path) -> None:
    """Wait until Pronk calls CartPole solved, has saved the policy and has ended; then play that policy."""
    training.wait()
    seconds = time.monotonic() - task.began
    summary = json.loads((run / "summary.json").read_text())
    evaluation = {}
    for name, flags in [("sampled", []), ("deterministic", ["--deterministic"])]:
        command = [*PRONK, "eval", str(run), "--json", "--episodes", "100", *flags]
        played = subprocess.run(command, check=True, capture_output=True, text=True)
        evaluation[name] = json.loads(played.stdout)["mean"]
    reached = summary["outcome"] == "solved"
    found: dict[str, Any] = {"steps": summary["env_steps"], "reached": reached, "solve_seconds": round(seconds, 2)}
    print_result(found | {"evaluation": evaluation}, PACKAGES)


def lines(path: Path, training: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the lines of metrics.jsonl that have an update behind them, as they are written, until training ends."""
    while not path.exists() and training.poll() is None:
        time.sleep(POLL)
    if not path.exists():
        raise SystemExit(f"pronk train ended with code {training.returncode} before its first update")
    with path.open() as file:
        begun = ""
        while True:
            ended = training.poll() is not None
            for text in file:
                begun += text
                if begun.endswith("\n"):
                    line, begun = json.loads(begun), ""
                    if line.get("updates"):
                        yield line
            if ended:
                return
            time.sleep(POLL)


if __name__ == "__main__":
    main()
