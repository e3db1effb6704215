"""Learning curves of the presets, as one small picture: what to expect of `pronk train PRESET`.

    python benchmarks/preset_curves.py pendulum lunarlander minigrid --seconds 60 --out curves.png

Each preset is trained for so many seconds with each seed; one whose package is not installed is skipped and named.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import pronk
from pronk.config import preset_names
from pronk.plotting import plot
from pronk.runs.reading import return_text


def main() -> None:
    """Train, then draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", default=preset_names(), help="by default all")
    parser.add_argument("--seconds", type=float, default=60, help="of training at most, for each run")
    parser.add_argument("--steps", type=float, help="of training at most, for each run [default: the preset's]")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", default="preset-curves.png")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trained = []
        for preset in given.presets:
            for seed in range(1, given.seeds + 1):
                path = Path(folder) / f"{preset}-{seed}"
                settings = [f"run.seed={seed}", f"run.total_seconds={given.seconds}", "run.stop_return=null"]
                settings += [f"run.total_steps={given.steps}"] if given.steps else []
                try:
                    summary = pronk.train(preset, settings, run_dir=path, say=lambda line: None)
                except pronk.UserError as error:
                    print(f"{preset}: skipped: {error}", flush=True)
                    break
                trained.append(path)
                steps, value = summary["env_steps"], summary["episode_return"]
                seconds = summary["wall_seconds"]
                print(
                    f"{preset}, seed {seed}: return {return_text(value)} after {steps:,} steps, {seconds:.0f} s",
                    flush=True,
                )
        if trained:
            print(plot([str(path) for path in trained], given.out, only=["return"]).path)


if __name__ == "__main__":
    main()
