"""What the evaluator process runs; `evaluator.py` starts it.

It plays whole episodes with each checkpoint that it is sent, and sends back the result. It writes no file but its log,
so it may be killed at any instant.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

from pronk.processes.channel import Channel
from pronk.processes.messages import Alive, Evaluate, Evaluated

NICENESS = 10  # of 19; measured in benchmarks/evaluator_cost.py
ALIVE_SECONDS = 1.0  # between signs of life while its environments step


def main(job: dict[str, Any], channel: Channel) -> None:
    """Evaluate checkpoint after checkpoint, always with the same episodes: only the agent changes."""
    lower_priority()
    import torch

    from pronk.config import ResolvedConfig
    from pronk.envs import make_env
    from pronk.seeding import BESIDE_TRAINING, evaluation_seeds

    torch.set_num_threads(1)
    config = ResolvedConfig.from_yaml(job["config"])
    settings = config.evaluation
    seeds = evaluation_seeds(settings.seed, settings.envs, BESIDE_TRAINING)
    channel.send(Alive())
    env = make_env(config, settings.envs)
    try:
        channel.send(Alive())
        for message in channel:
            assert isinstance(message, Evaluate)
            channel.send(Evaluated(evaluate(channel, config, env, message, *seeds)))
    finally:
        env.close()


def lower_priority() -> None:
    """Give training precedence: an evaluation may be late, an update may not.

    The evaluator then runs where actors and learner leave a core idle, and gets a small share of a busy one. A desktop
    Linux weighs sessions against one another, not processes, and has a priority per session (elsewhere the file does
    not exist or cannot be written).
    """
    niceness = os.nice(NICENESS)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(niceness))


def evaluate(
    channel: Channel, config: Any, env: Any, task: Evaluate, policy_seed: int, seeds: list[int]
) -> dict[str, Any]:
    """Play the episodes with one checkpoint; return a line of eval.jsonl."""
    from pronk.evaluation.playing import flat, play_episodes, restored_policy, with_games
    from pronk.runs.checkpoint import load_checkpoint

    began = reported = time.monotonic()

    def report_alive() -> None:
        nonlocal reported
        if time.monotonic() - reported >= ALIVE_SECONDS:
            reported = time.monotonic()
            channel.send(Alive())

    settings = config.evaluation
    state = load_checkpoint(Path(task.path))
    policy = restored_policy(config, env.spec, state, env.count, policy_seed, settings.deterministic)
    evaluation = play_episodes(env, policy, settings.episodes, seeds, report_alive)
    played = flat(with_games(evaluation, config.env).summary())
    metrics = state["metrics"]
    return {
        "wall_seconds": round(metrics["wall_seconds"], 3),  # of training, when the checkpoint was written
        "env_steps": metrics["env_steps"],
        "frames": metrics["env_steps"] * env.spec.frames_per_step,
        "updates": metrics["updates"],
        "checkpoint": task.checkpoint,
        **played,
        "deterministic": settings.deterministic,
        "seconds": round(time.monotonic() - began, 3),  # of playing
    }
