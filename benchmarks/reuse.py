"""What it gains to learn from experience more than once, and what replay costs. Three measurements:

    python benchmarks/reuse.py steps --seeds 1 2 3 4 5    environment steps until a score is reached, one process each
    python benchmarks/reuse.py wall --seeds 1 2 3         seconds until it is, where a step is slow; the ways take turns
    python benchmarks/reuse.py cost                       memory of the buffer, and CPU seconds of replay per update

The ways differ in nothing but what is named in WAYS. The score counts once whole episodes of the weights as they are
have confirmed it (`run.stop_return`). The slow environment is Catch that waits --wait seconds in every step, as if it
talked to a simulator elsewhere. Prints Markdown tables.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pronk
from pronk.envs.catch import CatchVectorEnv
from pronk.learner import Learner
from pronk.replay import Replay

HERE = Path(__file__).parent
PRONK = [sys.executable, "-m", "pronk"]
IMPALA = ("loss.name=impala", "loss.lambda_=1", "learner.passes=1")
WAYS: dict[str, tuple[str, ...]] = {
    "IMPALA": IMPALA,
    "with replay": (*IMPALA, "replay.size=1000"),
    "APPO, 4 passes": ("loss.name=appo", "loss.lambda_=0.95", "learner.passes=4"),
}
SCORES = {"catch": 0.9, "cartpole": 475.0}
MOST_STEPS = 2_000_000
COSTS = {"catch": ("replay.size=10000",), "pong": ("replay.size=2000",)}
UPDATES = 300


class SlowCatch(CatchVectorEnv):
    """Catch whose boards are stepped one after the other and take so many seconds each."""

    def __init__(self, num_envs: int, seconds: float) -> None:
        super().__init__(num_envs)
        self._seconds = seconds * num_envs

    def step(self, actions: Any) -> Any:
        """Wait, then step."""
        time.sleep(self._seconds)
        return super().step(actions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("steps", "wall", "cost"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--tasks", nargs="+", default=list(SCORES), choices=list(SCORES))
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS), metavar="WAY")
    parser.add_argument("--wait", type=float, default=0.002, help="seconds that a step of the slow environment takes")
    given = parser.parse_args()
    if given.what == "cost":
        return cost()
    slow = ["env.id=reuse:SlowCatch", f"env.kwargs={json.dumps({'seconds': given.wait})}", "env.wrappers=[]"]
    tasks = given.tasks if given.what == "steps" else ["catch"]
    found: dict[tuple[str, str], list[float]] = {}
    for task, seed, way in itertools.product(tasks, given.seeds, given.ways):
        more = ["transport=local"] if given.what == "steps" else slow
        steps, seconds = trained(task, seed, [*WAYS[way], *more])
        found.setdefault((task, way), []).append(steps if given.what == "steps" else seconds)
        print(f"{task}, seed {seed}, {way}: {steps:,} steps, {seconds:.1f} s of training", file=sys.stderr, flush=True)
    print(table(found, given.what))


def trained(task: str, seed: int, settings: list[str]) -> tuple[int, float]:
    """Train until the score is reached; return environment steps and seconds of training."""
    fixed = [f"run.stop_return={SCORES[task]}", f"run.total_steps={MOST_STEPS}", "optimiser.schedule=constant"]
    paths = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as folder:
        command = [*PRONK, "train", task, *fixed, *settings, "--seed", str(seed), "--quiet", "--run-dir", f"{folder}/r"]
        subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": paths})
        summary = json.loads(Path(folder, "r/summary.json").read_text())
    if summary["outcome"] != "solved":
        print(f"{task}, seed {seed}: not reached in {MOST_STEPS:,} steps", file=sys.stderr)
    return summary["env_steps"], summary["wall_seconds"]


def table(found: dict[tuple[str, str], list[float]], what: str) -> str:
    """Render Markdown: the mean of the seeds, all of them, and the mean as a share of IMPALA's."""
    unit = "steps" if what == "steps" else "seconds of training"
    lines = [f"| until the score is reached | mean {unit} | of IMPALA's | each seed |", "|---|---|---|---|"]
    for task, way in found:
        values, plain = found[task, way], statistics.fmean(found[task, "IMPALA"])
        mean, each = statistics.fmean(values), ", ".join(f"{value:,.0f}" for value in values)
        lines.append(f"| {task} {SCORES[task]:g}, {way} | {mean:,.0f} | {mean / plain:.2f} | {each} |")
    return "\n".join(lines)


# ---- what replay costs


def cost() -> None:
    """Print the memory of a buffer that fills up, and the share of replay in the CPU time of updates."""
    head = ("", "stated", "resident memory grew by", "update", "of it draw and record", "added to the learner's time")
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for task, settings in COSTS.items():
        print(f"| {task}, {settings[0]} | {' | '.join(measured(task, settings))} |", flush=True)


def measured(task: str, settings: tuple[str, ...]) -> list[str]:
    """Train until the buffer is full and for UPDATES more; return the cells of a row. CPU seconds of this thread."""
    said: list[str] = []
    replay, step = Clock(Replay, "draw", "record"), Clock(Learner, "step")  # what a step remembers of values is in it
    settings = (
        *settings,
        "transport=local",
        "run.stop_return=null",
        "learner.threads=1",
        "checkpoint.every_seconds=1e6",
    )
    with tempfile.TemporaryDirectory() as folder, replay, step:
        with pronk.Trainer(task, settings, run_dir=f"{folder}/run", say=said.append) as trainer:
            trainer.step(20)
            buffer, before = trainer._training._replay, resident()
            while len(buffer) < trainer._training.config.replay.size and not buffer.shortage:
                trainer.step(20)
            grown = resident() - before
            replay.seconds = step.seconds = 0.0
            trainer.step(UPDATES)
            stated = sum(array.nbytes for array in buffer.arrays.values())
    each = [clock.seconds / UPDATES * 1e3 for clock in (step, replay)]
    times = [f"{sum(each):.2f} ms", f"{each[1]:.2f} ms", f"{each[1] / each[0]:.1%}"]
    return [f"{stated / 2**20:.1f} MiB", f"{grown / 2**20:.1f} MiB", *times]


class Clock:
    """Adds up the CPU seconds that methods of a class take, while the `with` block lasts."""

    def __init__(self, owner: type, *names: str) -> None:
        self.seconds = 0.0
        self._owner, self._methods = owner, {name: getattr(owner, name) for name in names}

    def __enter__(self) -> None:
        for name, method in self._methods.items():
            setattr(self._owner, name, self._timed(method))

    def __exit__(self, *_: object) -> None:
        for name, method in self._methods.items():
            setattr(self._owner, name, method)

    def _timed(self, method: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            began = time.thread_time()
            try:
                return method(*arguments, **named)
            finally:
                self.seconds += time.thread_time() - began

        return call


def resident() -> int:
    """Return the memory of this process in bytes (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
