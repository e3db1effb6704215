"""What the evaluator process runs; `evaluator.py` starts it.

It plays whole episodes with each checkpoint that it is sent, and sends back the result. It writes no file but its log,
so it may be killed at any instant.

Its main thread has a low priority, so that it plays where training leaves a core idle. If other work keeps all cores
busy, or if training waits for the result, a second thread plays instead, which has kept the usual priority. (A thread
may lower its priority, but not raise it again.)
"""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pronk.processes.channel import Channel
from pronk.processes.messages import Alive, Evaluate, Evaluated
from pronk.processes.priority import lower_priority, set_priority_of_session

ALIVE_SECONDS = 1.0  # between heartbeats while its environments step
PATIENCE_SECONDS = 10.0  # of playing at low priority, before its share of a core is judged
MOST_WAITING = 0.95  # of that time may be spent waiting for a core
SCHEDULED = "/proc/thread-self/schedstat"  # nanoseconds that this thread ran, and that it waited for a core


def main(job: dict[str, Any], channel: Channel) -> None:
    """Evaluate checkpoint after checkpoint, always with the same episodes: only the agent changes."""
    import torch

    usual = ThreadPoolExecutor(1)
    usual.submit(os.getpid).result()  # its thread is made before the priority falls, which it would inherit
    faulthandler.register(signal.SIGUSR1, 2, all_threads=True)  # whichever of the two hangs
    lower_priority()
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

            def play(watch: Callable[[], None], task: Evaluate = message) -> dict[str, Any]:
                return evaluate(channel, config, env, task, *seeds, watch)

            channel.send(Evaluated(played_in_time(play, usual, message.urgent)))
    finally:
        env.close()


def played_in_time(play: Callable[[Callable[[], None]], Any], usual: ThreadPoolExecutor, urgent: bool) -> Any:
    """Play at low priority; at the usual one if it is urgent, or if the low one gets almost no time on a core."""
    if not urgent:
        try:
            return play(StarvationWatch().check)
        except StarvedError as starved:
            print(f"{starved}: beginning again at the usual priority", flush=True)
    try:
        set_priority_of_session(0)
        return usual.submit(play, lambda: None).result()
    finally:
        set_priority_of_session(os.getpriority(os.PRIO_PROCESS, 0))


class StarvedError(Exception):
    """Other work takes all of the cores."""


class StarvationWatch:
    """Compares the time that passes with the time in which this thread waited for a core."""

    def __init__(self) -> None:
        self._began, self._waited = time.monotonic(), waited_for_a_core()

    def check(self) -> None:
        """Raise `StarvedError` if it has waited nearly all of the time, for long enough."""
        passed = time.monotonic() - self._began
        if passed < PATIENCE_SECONDS:
            return
        if waited_for_a_core() - self._waited > MOST_WAITING * passed:
            raise StarvedError(f"no core to play on in {passed:.0f} s")
        self._began, self._waited = time.monotonic(), waited_for_a_core()


def waited_for_a_core() -> float:
    """Return the seconds that this thread could have run and did not; 0 where the system does not say."""
    try:
        return int(Path(SCHEDULED).read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def evaluate(
    channel: Channel,
    config: Any,
    env: Any,
    task: Evaluate,
    policy_seed: int,
    seeds: list[int],
    watch: Callable[[], None],
) -> dict[str, Any]:
    """Play the episodes with one checkpoint; return a line of eval.jsonl. `watch` is called now and then."""
    from pronk.evaluation.playing import flat, play_episodes, restored_policy, with_games
    from pronk.runs.checkpoint import load_checkpoint

    began = reported = time.monotonic()

    def report_alive() -> None:
        nonlocal reported
        if time.monotonic() - reported >= ALIVE_SECONDS:
            reported = time.monotonic()
            channel.send(Alive())
            watch()

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
