"""What the evaluator process runs; `evaluator.py` starts it.

It is told of one checkpoint after another on its standard input, plays whole episodes with each, and answers over a
pipe. It writes no file but its log, so it may be killed at any instant.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from pronk.processes.failures import user_traceback
from pronk.processes.lifeline import die_with_parent

NICENESS = 10  # of 19; measured in benchmarks/evaluator_cost.py
BEAT_SECONDS = 1.0  # how often it tells that its environments move
MOST_TOLD = 15_000  # bytes: a pipe holds at least 16 KiB without a reader


def main(job: dict[str, Any]) -> None:
    """Evaluate what it is told of, until its standard input ends. A failure is told to whoever started this process."""
    die_with_parent(job["parent"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    stand_back()
    print(f"{time.strftime('%F %T')} the evaluator starts (life {job['life']}, pid {os.getpid()})", flush=True)
    code = 0
    try:
        serve(job)
        print(f"{time.strftime('%F %T')} the evaluator ends: the training is over", flush=True)
    except Exception as error:
        traceback.print_exc()
        with contextlib.suppress(OSError):
            tell(job, failure=user_traceback(error)[-MOST_TOLD:])
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # not `exit`, which waits for threads that an environment may have left


def stand_back() -> None:
    """Let the training go first: an evaluation may be late, an update may not.

    With a lower priority it runs where actors and learner leave a core idle, and gets a small share of a busy one, so
    that it is never starved. On a desktop Linux weighs whole sessions against one another, not processes; there the
    session has a priority of its own (the file is not there, or may not be written, where that is not so).
    """
    niceness = os.nice(NICENESS)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(niceness))


def tell(job: dict[str, Any], **message: Any) -> None:
    """One line to whoever started this process."""
    os.write(job["answers"], json.dumps(message).encode() + b"\n")


def serve(job: dict[str, Any]) -> None:
    """Evaluate checkpoint after checkpoint, always with the same episodes: what changes is the agent."""
    import torch

    from pronk.config import ResolvedConfig
    from pronk.envs import make_env
    from pronk.seeding import BESIDE_TRAINING, evaluation_seeds

    torch.set_num_threads(1)
    config = ResolvedConfig.from_yaml(job["config"])
    settings = config.evaluation
    seeds = evaluation_seeds(settings.seed, settings.envs, BESIDE_TRAINING)
    tell(job, alive=True)
    env = make_env(config, settings.envs)
    try:
        tell(job, alive=True)
        for line in sys.stdin.buffer:
            tell(job, line=evaluate(job, config, env, json.loads(line), *seeds))
    finally:
        env.close()


def evaluate(
    job: dict[str, Any], config: Any, env: Any, task: dict[str, str], policy_seed: int, seeds: list[int]
) -> dict[str, Any]:
    """Play the episodes with one checkpoint; gives a line of eval.jsonl."""
    from pronk.evaluation.playing import play_episodes, restored_policy
    from pronk.runs.checkpoint import load_checkpoint

    began = beaten = time.monotonic()

    def beat() -> None:
        nonlocal beaten
        if time.monotonic() - beaten >= BEAT_SECONDS:
            beaten = time.monotonic()
            tell(job, alive=True)

    settings = config.evaluation
    state = load_checkpoint(Path(task["path"]))
    policy = restored_policy(config, env.spec, state, env.count, policy_seed, settings.deterministic)
    played = play_episodes(env, policy, settings.episodes, seeds, beat)._replace(game=config.env.game).summary()
    del played["interval"]  # it follows from the rest, and is no number
    metrics = state["metrics"]
    return {
        "wall_seconds": round(metrics["wall_seconds"], 3),  # of training, when the checkpoint was written
        "env_steps": metrics["env_steps"],
        "frames": metrics["env_steps"] * env.spec.frames_per_step,
        "updates": metrics["updates"],
        "checkpoint": task["checkpoint"],
        **played,
        "deterministic": settings.deterministic,
        "seconds": round(time.monotonic() - began, 3),  # of playing
    }
