"""Run directories as a training would leave them, made in no time, for tests of what only reads them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from pronk.config import load_config, record, resolve
from pronk.metrics import Metrics
from pronk.runs.directory import RunDirectory
from pronk.sinks.jsonl import JsonLines

LINE_EVERY = 4096  # steps


def line(number: int, lines: int, goal: float = 500.0) -> dict[str, Any]:
    """A line of metrics of a run that learns; the same for the same number."""
    part = number / max(1, lines)
    wobble = math.sin(number * 1.7) * 0.5 + math.sin(number * 0.37)
    return {
        "wall_seconds": round(1.0 + number * 1.003, 3),
        "env_steps": number * LINE_EVERY,
        "frames": number * LINE_EVERY,
        "updates": number * 8,
        "episodes": number * 30,
        "episode_return": round(goal / (1 + math.exp(6 - 12 * part)) + 8 * wobble + 20, 3),
        "episode_length": round(goal / (1 + math.exp(6 - 12 * part)) + 20, 3),
        "steps_per_second": round(140_000 + 9_000 * wobble, 1),
        "policy_lag": round(1.4 + 0.2 * wobble, 4),
        "loss": round(0.3 * math.exp(-3 * part) + 0.02 * wobble, 6),
        "entropy": round(0.69 * math.exp(-1.2 * part) + 0.01 * wobble, 6),
        "gradient_norm": round(0.4 + 0.1 * wobble, 6),
        "policy_loss": -0.006,
        "baseline_loss": 0.04,
        "learning_rate": round(0.001 * (1 - part), 8),
        "learner_waits": round(0.22 + 0.05 * wobble, 4),
        "queue": 0.25,
    }


def make_run(path: Path, lines: int = 200, outcome: str | None = "finished", overrides: tuple[str, ...] = ()) -> Path:
    """A run that is over; without an outcome it has no summary."""
    (path / "logs").mkdir(parents=True)
    config = load_config("cartpole", [f"run.total_steps={max(1, lines) * LINE_EVERY}", *overrides])
    (path / "config.yaml").write_text(record(config, resolve(config)).to_yaml())
    all_lines = [line(number, lines) for number in range(lines)]
    (path / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in all_lines))
    if outcome is not None:
        last = all_lines[-1] if all_lines else {"updates": 0}
        (path / "summary.json").write_text(json.dumps({"outcome": outcome, "run": str(path), **last}))
    return path


def add_the_rest(path: Path, actors: int = 2) -> None:
    """Evaluation, lag, notes, actors and the machine's limit."""
    evaluations = [
        {"env_steps": n * LINE_EVERY, "mean": line(n, 200)["episode_return"], "std": 30.0 * (1 - n / 220), "min": 9.0}
        | {"max": 500.0, "episodes": 20, "checkpoint": f"checkpoints/{n * LINE_EVERY:012d}.pt"}
        for n in range(10, 200, 20)
    ]
    (path / "eval.jsonl").write_text("".join(json.dumps(one) + "\n" for one in evaluations))
    lags = {"0": 9_000, "1": 61_000, "2": 38_000, "3": 4_000, "4": 300, "6": 12}
    (path / "lag.json").write_text(json.dumps({"updates": 1600, "columns": lags}))
    notes = [{"message": "the learner waits; try <b>x=2</b>", "over": False}, {"message": "it was slow", "over": True}]
    (path / "notes.json").write_text(json.dumps({"notes": notes}))
    one = {"state": "ended", "unrolls": 800, "filled": 0, "slots": 2, "lives": 1, "pid": None, "silent_seconds": 0.0}
    all_of_them = [{"actor": n, **one, "machine": "this machine", "steps_per_second": 7e4 - n} for n in range(actors)]
    (path / "logs" / "actors.json").write_text(json.dumps({"time": 1.0, "running": False, "actors": all_of_them}))
    figures = {"env": 650e3, "inference": 410e3, "learner": 280e3, "limit": 265e3, "trained": 150e3, "efficiency": 0.57}
    (path / "bench.json").write_text(json.dumps({**figures, "cores": 2}))


def make_long_metrics(path: Path, lines: int) -> None:
    """Real lines, as many as wanted, at the speed of the disk: only the digits that count blocks change."""
    per_block = 10_000
    assert lines % per_block == 0, "whole blocks"
    blocks = lines // per_block
    texts = []
    for number in range(per_block):
        one = {**line(0, 1), "wall_seconds": 0, "env_steps": 0, "frames": 0, "updates": 0, "episode_return": 0}
        text = json.dumps(one)
        for name in ("wall_seconds", "env_steps", "frames", "updates"):
            text = text.replace(f'"{name}": 0', f'"{name}": 1#####{number:04d}')
        texts.append(text.replace('"episode_return": 0', '"episode_return": 1#####.5') + "\n")
    block = np.frombuffer("".join(texts).encode(), np.uint8).reshape(per_block, -1).copy()
    digits = np.flatnonzero(block[0] == ord("#")).reshape(-1, 5)
    with open(path, "wb") as file:
        for number in range(blocks):
            block[:, digits] = np.frombuffer(f"{number:05d}".encode(), np.uint8)
            file.write(block)  # type: ignore[arg-type]


def made_run(
    path: Path,
    *overrides: str,
    source: str = "cartpole",
    returns=(),
    evaluations=(),
    outcome: str | None = "finished",
    failure: str | None = None,
):
    """One with a line of metrics for every return, 1,000 steps and one second apart, and a summary.

    Evaluations are pairs of thousands of steps and a mean return.
    """
    run = RunDirectory.create(load_config(source, list(overrides)), path, "made")
    template = Metrics(frames_per_step=4).line()
    line = template
    with JsonLines(run.metrics, run.evaluations) as file:
        for place, mean in evaluations:
            done = {"env_steps": 1000 * place, "frames": 4000 * place, "updates": place, "wall_seconds": float(place)}
            file.evaluated({**done, "checkpoint": f"{1000 * place:012d}.pt", "episodes": 20, "mean": mean})
        for index, value in enumerate(returns):
            done = {"env_steps": 1000 * index, "frames": 4000 * index, "updates": index, "wall_seconds": float(index)}
            more = {"episodes": 50 * index, "episode_return": value, "policy_lag": 1.0, "entropy": 0.5}
            line = {**template, **done, **more, "steps_per_second": 1000.0}
            file.write(line)
    if outcome:
        cause = {"failure": failure} if failure else {}
        run.write_summary({"outcome": outcome, "run": str(path), "checkpoint": None, **cause, **line})
    return path
