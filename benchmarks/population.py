"""A population against as many independent runs: `python benchmarks/population.py examples/population.yaml --seeds 3`.

Both sides start with the same settings and seeds, and every member makes the same number of environment steps. The
independent runs never copy nor change: their burn-in lasts until the end, in one round. Prints a Markdown table of the
final mean returns of the best member and of all members.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pronk.config import available_cores, plain_yaml, read_yaml
from pronk.populations.plan import read_population

PRONK = [sys.executable, "-m", "pronk"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", default=Path("examples/population.yaml"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    given = parser.parse_args()
    plan = read_population(given.file)
    print(f"{platform.machine()}, {available_cores()} cores, Python {platform.python_version()}")
    print(f"{given.file}: {plan.options.size} members, {plan.total_steps:,} steps each\n")
    print("| seed | population: best | all | s | independent: best | all | s |\n|---|---|---|---|---|---|---|")
    alone = {"ready_steps": plan.total_steps, "burn_in_steps": plan.total_steps}
    for number in range(given.seeds):
        seed = given.first_seed + number * plan.options.size  # members have consecutive seeds
        cells = [cell for changes in ({}, alone) for cell in trained(given.file, seed, changes)]
        print(f"| {seed} | {' | '.join(cells)} |", flush=True)


def trained(file: Path, seed: int, changes: dict[str, Any]) -> list[str]:
    """Train, and return the final return of the best member, the mean of all, and the seconds from the prompt."""
    tree = read_yaml(file)
    tree["run"] = {**tree.get("run", {}), "seed": seed}
    tree["population"] |= changes
    with tempfile.TemporaryDirectory() as folder:
        changed, run = Path(folder) / "changed.yaml", Path(folder) / "run"
        changed.write_text(plain_yaml.dump(tree))
        began = time.perf_counter()
        subprocess.run([*PRONK, "population", str(changed), "--quiet", "--run-dir", str(run)], check=True)
        seconds = time.perf_counter() - began
        members = json.loads((run / "population.json").read_text())["rounds"][-1]["members"]
    values = [member["value"] for member in members if member["value"] is not None]
    return [f"{max(values):.2f}", f"{sum(values) / len(values):.2f}", f"{seconds:.0f}"]


if __name__ == "__main__":
    main()
