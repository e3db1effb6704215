"""Does the scale of rewards and observations matter? `python benchmarks/scale_free.py`

Trains each environment as it is, with rewards x0.001 and x1000, and with observations x0.001 and x1000, at Pronk's
defaults and for the same number of steps. Prints the final return of each seed, in units of the original rewards. Equal
within noise is the aim. Results are appended to a JSON-lines file; what is in it is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SCALES = {
    "as it is": (1.0, 1.0),
    "rewards x0.001": (0.001, 1.0),
    "rewards x1000": (1000.0, 1.0),
    "observations x0.001": (1.0, 0.001),
    "observations x1000": (1.0, 1000.0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", nargs="+", default=["CartPole-v1", "Acrobot-v1", "LunarLander-v3"], metavar="ID")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], metavar="N")
    parser.add_argument("--steps", type=float, default=500_000)
    parser.add_argument("--results", type=Path, default=Path("scale_free.jsonl"))
    parser.add_argument("overrides", nargs="*", metavar="SECTION.KEY=VALUE", help="settings of Pronk, for all")
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.results.read_text().splitlines()] if options.results.exists() else []
    for env in options.env:
        for seed in options.seeds:
            for scale in SCALES:  # in turn, so that a slow moment of the machine meets all of them
                job = {"env": env, "seed": seed, "scale": scale, "steps": options.steps, "set": options.overrides}
                if any(job.items() <= row.items() for row in rows):
                    continue
                rows.append(job | {"return": measure(env, seed, scale, options.steps, options.overrides)})
                with options.results.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
                print(f"{env} seed {seed}, {scale}: {rows[-1]['return']:.1f}", flush=True)
    mine = [row for row in rows if row["steps"] == options.steps and row["set"] == options.overrides]
    print(table([row for row in mine if row["env"] in options.env]))


def measure(env: str, seed: int, scale: str, steps: float, overrides: list[str]) -> float:
    """Train and evaluate once. Returns the mean of 100 episodes, in units of the original rewards."""
    reward, observation = SCALES[scale]
    pronk = [sys.executable, "-m", "pronk"]
    paths = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as folder:
        kwargs = [f"env.kwargs.id={env}", f"env.kwargs.reward={reward}", f"env.kwargs.observation={observation}"]
        run = ["--seed", str(seed), "--quiet", "--run-dir", f"{folder}/run"]
        train = [*pronk, "train", "scaled:scaled", *kwargs, f"run.total_steps={steps:.0f}", *overrides, *run]
        subprocess.run(train, check=True, env=os.environ | {"PYTHONPATH": paths})
        played = subprocess.run(
            [*pronk, "eval", f"{folder}/run", "--json"],
            check=True,
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": paths},
        )
    return json.loads(played.stdout)["mean"] / reward


def table(rows: list[dict[str, Any]]) -> str:
    """Render Markdown: the mean of the seeds, and each of them."""
    lines = [f"| environment | {' | '.join(SCALES)} |", "|---|" + "---|" * len(SCALES)]
    for env in dict.fromkeys(row["env"] for row in rows):
        cells = []
        for scale in SCALES:
            values = [row["return"] for row in rows if (row["env"], row["scale"]) == (env, scale)]
            each = ", ".join(f"{value:.0f}" for value in values)
            cells.append(f"{statistics.fmean(values):.1f} ({each})" if values else "")
        lines.append(f"| {env} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
