"""Run directories as a training would leave them, without the training."""

from pathlib import Path

from pronk.checkpoint import RunDirectory
from pronk.config import load_config
from pronk.metrics import Metrics
from pronk.sinks.jsonl import JsonLines


def made_run(path: Path, *overrides: str, source: str = "cartpole", returns=(), outcome: str | None = "finished"):
    """One with a line of metrics for every return, 1,000 steps and one second apart, and a summary."""
    run = RunDirectory.create(load_config(source, list(overrides)).resolved(), path, "made")
    template = Metrics(frames_per_step=4).line()
    line = template
    with JsonLines(run.metrics) as file:
        for index, value in enumerate(returns):
            done = {"env_steps": 1000 * index, "frames": 4000 * index, "updates": index, "wall_seconds": float(index)}
            more = {"episodes": 50 * index, "episode_return": value, "policy_lag": 1.0, "entropy": 0.5}
            line = {**template, **done, **more, "steps_per_second": 1000.0}
            file.write(line)
    if outcome:
        run.write_summary({"outcome": outcome, "run": str(path), "checkpoint": None, **line})
    return path
