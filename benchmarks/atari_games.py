"""Atari games for 10 million steps each, beside what the source documents report: `python benchmarks/atari_games.py`

Trains one game after another with its preset, then plays 100 whole games with the final weights, as the paper does: up
to 30 no-ops at the start, raw scores; once with sampled actions and once with the likeliest. Ten million steps are 40
million frames, about 75 minutes on two cores. Stop it whenever you like: the same command continues the run that was
stopped, and what is in the results is not run again.

    python benchmarks/atari_games.py --games breakout pong --seeds 1 2     # only these
    python benchmarks/atari_games.py --games boxing --preset atari         # any other game: the general preset
    python benchmarks/atari_games.py --table                               # run nothing; print the table
    python benchmarks/atari_games.py --games qbert -- loss.discount=0.995  # with other settings

Weights to share: `pronk push runs/atari_games/RUN ./shared`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from against_sb3 import commit, machine

RESULTS = Path(__file__).parent.parent / "docs/results/atari/games.jsonl"
PRONK = [sys.executable, "-m", "pronk"]
EPISODES = 100


class Reported(NamedTuple):
    """What others report after 10 million steps: XingTian's IMPALA and PPO, RLlib's IMPALA."""

    impala: float | None = None
    ppo: float | None = None
    rllib: float | None = None


REPORTED = {
    "beam_rider": Reported(2313, 4877, 2071),
    "breakout": Reported(334, 341, 385),
    "pong": Reported(21),
    "qbert": Reported(12205, 14771, 4068),
    "seaquest": Reported(),
    "space_invaders": Reported(742, 1025, 719),
}


class Job(NamedTuple):
    """One training and the evaluation of its last weights."""

    game: str
    seed: int
    steps: int
    overrides: tuple[str, ...]

    @classmethod
    def of(cls, row: dict[str, Any]) -> Job:
        """The job that gave a row of the results."""
        return cls(row["game"], row["seed"], row["steps"], tuple(row["overrides"]))

    @property
    def name(self) -> str:
        settings = "".join(f"-{text.replace('/', '_')}" for text in self.overrides)
        return f"{self.game}-{self.steps // 1000}k-seed{self.seed}{settings}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", default=list(REPORTED), metavar="GAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], metavar="N")
    parser.add_argument("--steps", type=float, default=10e6)
    parser.add_argument("--preset", help="instead of each game's own")
    parser.add_argument("--results", type=Path, default=RESULTS, help="results are appended here")
    parser.add_argument("--runs", type=Path, default=Path("runs/atari_games"))
    parser.add_argument("--table", action="store_true", help="run nothing; print what was measured")
    parser.add_argument("overrides", nargs="*", metavar="SECTION.KEY=VALUE")
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.results.read_text().splitlines()] if options.results.exists() else []
    done = {Job.of(row) for row in rows}
    for seed in [] if options.table else options.seeds:
        for game in options.games:
            job = Job(game, seed, int(options.steps), tuple(options.overrides))
            if job not in done:
                rows.append(measure(job, options.preset or game.replace("_", ""), options.runs / job.name))
                with options.results.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    print(table(rows))


def measure(job: Job, preset: str, run: Path) -> dict[str, Any]:
    """Train, or continue a training that was stopped, and evaluate."""
    settings = [f"run.total_steps={job.steps}", "run.stop_return=null", *job.overrides]
    if run.exists():
        command = ["train", str(run), "--resume", f"run.total_steps={job.steps}"]
    else:
        game = [f"env.game={job.game}"] if preset == "atari" else []
        command = ["train", preset, *game, *settings, "--seed", str(job.seed), "--run-dir", str(run)]
    subprocess.run([*PRONK, *command], check=True)
    summary = json.loads((run / "summary.json").read_text())
    row = job._asdict() | {
        "preset": preset,
        "wall_seconds": summary["wall_seconds"],
        "trained_steps": summary["env_steps"],
    }
    row["training"] = summary["episode_return"]
    for name, flags in {"sampled": [], "likeliest": ["--deterministic"]}.items():
        command = ["eval", str(run), "--json", "--episodes", str(EPISODES), *flags]
        played = json.loads(subprocess.run([*PRONK, *command], check=True, stdout=subprocess.PIPE, text=True).stdout)
        row[name] = {key: played[key] for key in ("mean", "std", "episodes")}
    return row | {"commit": commit(), "machine": machine()}


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Return a Markdown table: every run, in the order of the games."""
    lines = [
        "| game | seed | steps (M) | minutes | steps/s | training | 100 games, sampled | likeliest "
        "| XingTian IMPALA | its PPO | RLlib IMPALA | commit |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: (row["game"], row["steps"], row["seed"])):
        others = (f"{score:g}" if score is not None else "" for score in REPORTED.get(row["game"], Reported()))
        scores = (f"{row[name]['mean']:.4g} ± {row[name]['std']:.3g}" for name in ("sampled", "likeliest"))
        settings = f" {' '.join(row['overrides'])}" if row["overrides"] else ""
        cells = (
            row["game"] + settings,
            row["seed"],
            f"{row['trained_steps'] / 1e6:.3g}",
            f"{row['wall_seconds'] / 60:.0f}",
            f"{row['trained_steps'] / row['wall_seconds']:,.0f}",
            f"{row['training']:.4g}",
            *scores,
            *others,
            row["commit"],
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
