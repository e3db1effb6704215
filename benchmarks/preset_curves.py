"""Learning curves of the presets, as one small picture: what to expect of `pronk train PRESET`.

    python benchmarks/preset_curves.py pendulum lunarlander minigrid --seconds 60 --out curves.png

Each preset is trained for so many seconds with each seed. One that is in the folder of runs already is only drawn, so
that presets may be given different times; one whose package is not installed is skipped and named. Prints a table.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pronk
from pronk.config import preset_names
from pronk.plotting import plot
from pronk.runs.reading import find_runs, return_text


def main() -> None:
    """Train, then draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", default=preset_names(), help="by default all")
    parser.add_argument("--seconds", type=float, default=60, help="of training at most, for each run")
    parser.add_argument("--steps", type=float, help="of training at most, for each run [default: the preset's]")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--runs", type=Path, default=Path("runs/preset_curves"))
    parser.add_argument("--out", default="preset-curves.png")
    given = parser.parse_args()
    runs = [(preset, seed) for preset in given.presets for seed in range(1, given.seeds + 1)]
    trained = [path for preset, seed in runs if (path := train(preset, seed, given))]
    print("| preset | seed | return | steps | seconds |\n|---|---|---|---|---|")
    for path in trained:
        print(row_of(path))
    if trained:
        print(plot([str(path) for path in trained], given.out, only=["return"]).path)


def train(preset: str, seed: int, given: argparse.Namespace) -> Path | None:
    """Train once, if it is not done yet. Returns where; None if the preset lacks a package."""
    path = given.runs / f"{preset}-{seed}"
    if path.exists():
        return path
    settings = [f"run.seed={seed}", f"run.total_seconds={given.seconds}", "run.stop_return=null"]
    settings += [f"run.total_steps={given.steps}"] if given.steps else []
    try:
        pronk.train(preset, settings, run_dir=path, say=lambda line: None)
    except pronk.UserError as error:
        print(f"{preset}: skipped: {error}", flush=True)
        return None
    return path


def row_of(path: Path) -> str:
    preset, _, seed = path.name.rpartition("-")
    last = find_runs([str(path)])[0].last
    numbers = return_text(last["episode_return"]), f"{last['env_steps']:,}", f"{last['wall_seconds']:.0f}"
    return f"| `{preset}` | {seed} | {' | '.join(numbers)} |"


if __name__ == "__main__":
    main()
