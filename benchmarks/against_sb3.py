"""Pronk beside Stable-Baselines3's PPO and A2C, all at their defaults: `python benchmarks/against_sb3.py`.

Every run is a program of its own, trains for the same number of seconds and then plays the same number of episodes.
Nobody gets settings but the time limit. Per environment and seed the algorithms take turns, so that a slow moment of
the machine meets all of them. Run nothing else meanwhile: Pronk is several processes and SB3 one, so a busy machine
favours Pronk. `load` of a result is the machine's load average before it. Each result is appended to a JSON-lines file
at once, and what is in it is not run again: stop whenever you like, and continue with the same command.

SB3's PPO and A2C run side by side, each on a core of its own with one thread. That is no handicap: small networks do
not gain from a second thread (PPO on LunarLander in 20 s: 43,960 steps with the machine to itself, 49,160 so; A2C:
41,008 and 41,392). For pictures they do, so there each has the machine to itself.

    python -m venv sb3 && sb3/bin/pip install -r benchmarks/sb3_requirements.txt
    python benchmarks/against_sb3.py --sb3-python sb3/bin/python            # all environments, three seeds, 120 s each
    python benchmarks/against_sb3.py --table docs/results/against_sb3.md    # only draw what was measured
    python benchmarks/against_sb3.py --only pronk --env Pendulum-v1 --seeds 11 12 --seconds 60 -- loss.discount=0.9
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from against_sb3_table import print_table, write_table

HERE = Path(__file__).parent
ALGORITHMS = ("pronk", "ppo", "a2c")
RESULTS = HERE.parent / "docs/results/against_sb3.jsonl"
EPISODES = 30

# What Pronk and SB3 call each environment, where it is not the same name. Episodes of Pong are long: ten are played.
ATARI = {"Pong": ("atari", "env.game=pong")}
SB3_NAMES = {"Pong": "PongNoFrameskip-v4"}
FEWER_EPISODES = {"Pong": 10}
ENVIRONMENTS = (
    "CartPole-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "Pendulum-v1",
    "LunarLander-v3",
    "LunarLanderContinuous-v3",
    "FrozenLake-v1",
    "Taxi-v4",
    "HalfCheetah-v5",
    "Hopper-v5",
    "MinAtar/Breakout-v1",
    "MinAtar/SpaceInvaders-v1",
    "MiniGrid-DoorKey-5x5-v0",
    "BabyAI-GoToLocal-v0",
    "Pong",
)


class Job(NamedTuple):
    """One run. Two with equal fields are the same experiment."""

    env: str
    algorithm: str
    seed: int
    seconds: float
    overrides: tuple[str, ...] = ()

    @classmethod
    def of(cls, row: dict[str, Any]) -> Job:
        """The job that gave a row of the results."""
        return cls(row["env"], row["algorithm"], row["seed"], row["seconds"], tuple(row["overrides"]))

    @property
    def episodes(self) -> int:
        return FEWER_EPISODES.get(self.env, EPISODES)


def main() -> None:
    options = parse()
    rows = read(options.results)
    if options.table:
        write_table(rows, options.table)
        return
    done = {Job.of(row) for row in rows}
    for together in jobs(options):
        waiting = [job for job in together if job not in done]
        with ThreadPoolExecutor() as threads:
            new = threads.map(partial(measure, options, len(together) == 1), waiting)
            measured = [row for row in new if row is not None]
        with options.results.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in measured)
        rows += measured
        for row in measured:
            print(f"{describe(Job.of(row))}: {row['sampled']['mean']:.4g} after {row['steps']:,} steps", flush=True)
    print_table([row for row in rows if row["env"] in options.env], options.seconds, tuple(options.overrides))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", nargs="+", default=list(ENVIRONMENTS), metavar="ID", help="environments to run")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], metavar="N")
    parser.add_argument("--seconds", type=float, default=120.0, help="of training, per run")
    parser.add_argument("--only", nargs="+", choices=[*ALGORITHMS, "random"], default=["random", *ALGORITHMS])
    parser.add_argument("--results", type=Path, default=RESULTS, help="results are appended here")
    parser.add_argument("--runs", type=Path, default=Path("runs/against_sb3"), help="where Pronk's runs are kept")
    parser.add_argument("--pronk-python", default=sys.executable, help="a Python that has Pronk and the environments")
    parser.add_argument("--sb3-python", default=sys.executable, help="a Python that has SB3 and the environments")
    parser.add_argument("--table", type=Path, metavar="FILE.md", help="run nothing; write table and plot")
    parser.add_argument("overrides", nargs="*", metavar="SECTION.KEY=VALUE", help="for tuning: settings of Pronk")
    return parser.parse_args()


def jobs(options: argparse.Namespace) -> Iterator[list[Job]]:
    """All runs in order: per environment and seed, the algorithms in turn. Those of one list run side by side."""
    for env in options.env:
        if "random" in options.only:
            yield [Job(env, "random", 0, 0.0)]
        for seed in options.seeds:
            if "pronk" in options.only:
                yield [Job(env, "pronk", seed, options.seconds, tuple(options.overrides))]
            peers = [Job(env, name, seed, options.seconds) for name in ("ppo", "a2c") if name in options.only]
            yield from [[peer] for peer in peers] if env in SB3_NAMES else [peers]


def measure(options: argparse.Namespace, alone: bool, job: Job) -> dict[str, Any] | None:
    """Train and evaluate once. A run that fails is reported and left out, so that it is tried again next time."""
    began, load = time.monotonic(), os.getloadavg()[0]
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    try:
        if job.algorithm == "pronk":
            result = run_pronk(job, options.pronk_python, options.runs)
        else:
            result = run_sb3(job, options.sb3_python, alone)
    except subprocess.CalledProcessError as error:
        last = (error.stderr or error.stdout or "").strip().splitlines()[-1:]
        print(f"{describe(job)} FAILED: {' '.join(last)}", flush=True)
        return None
    except subprocess.TimeoutExpired as error:
        print(f"{describe(job)} FAILED: not done after {error.timeout:.0f} s", flush=True)
        return None
    facts = {"date": date, "machine": machine(), "load": load, "all_seconds": round(time.monotonic() - began, 1)}
    return job._asdict() | result | facts


def run_pronk(job: Job, python: str, runs: Path) -> dict[str, Any]:
    settings = "-".join(re.sub(r"[^\w.=]+", "_", text) for text in job.overrides)
    stamp = time.strftime("%m%d-%H%M%S")
    folder = runs / "-".join(filter(None, [job.env.replace("/", "_"), settings[:80], f"seed{job.seed}", stamp]))
    source = ATARI.get(job.env, (job.env,))
    limit = (f"run.total_seconds={job.seconds}", "run.total_steps=1000000000000")
    pronk = [python, "-m", "pronk"]
    train = ["train", *source, *limit, *job.overrides, "--seed", str(job.seed), "--quiet", "--run-dir", str(folder)]
    finish([*pronk, *train], job)
    summary = json.loads((folder / "summary.json").read_text())
    result: dict[str, Any] = {"steps": summary["env_steps"], "run": folder.name}
    for name, flag in [("sampled", []), ("deterministic", ["--deterministic"])]:
        seed = ["--seed", str(job.seed)]
        played = finish([*pronk, "eval", str(folder), "--json", "--episodes", str(job.episodes), *seed, *flag], job)
        result[name] = {key: json.loads(played)[key] for key in ("mean", "std", "episodes")}
    return result | {"commit": commit()}


def run_sb3(job: Job, python: str, alone: bool) -> dict[str, Any]:
    env = SB3_NAMES.get(job.env, job.env)
    numbers = ["--seed", str(job.seed), "--seconds", str(job.seconds), "--episodes", str(job.episodes)]
    core = [] if alone else ["--core", str(ALGORITHMS.index(job.algorithm) % 2)]
    command = [python, str(HERE / "sb3_peer.py"), job.algorithm, env, *numbers, *core]
    return json.loads(finish(command, job).splitlines()[-1])


def finish(command: list[str], job: Job) -> str:
    """Run a program to its end and return what it printed."""
    limit = 2 * job.seconds + 900
    ended = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=True, env=environment())
    return ended.stdout


def describe(job: Job) -> str:
    return " ".join([job.env, job.algorithm, f"seed {job.seed}", *job.overrides])


def commit() -> str:
    """Return the version of Pronk that was measured; `+` marks changes of the package that are not committed."""
    return git("describe", "--always") + ("+" if git("status", "--porcelain", "pronk") else "")


def git(*arguments: str) -> str:
    command = ["git", "-C", str(HERE.parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def machine() -> str:
    """Return the processor's name and the number of cores."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    name = re.search(r"model name\s*: (.*)", info)
    return f"{name[1] if name else platform.processor()}, {os.cpu_count()} cores"


def environment() -> dict[str, str]:
    # MuJoCo and pygame look for a screen otherwise.
    return os.environ | {"SDL_VIDEODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()
