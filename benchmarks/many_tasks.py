"""One set of weights for many tasks: `python benchmarks/many_tasks.py --steps 1e6 --seeds 1 2 3`.

MinAtar's games (`pip install 'pronk[minatar]'`), with the settings of the preset `minatar`. For each seed it trains

    random      nothing: a learning rate of almost zero
    alone       every game by itself, for --steps steps
    together    all games with one set of weights (env.tasks), for --steps steps of each
    observed    the same, and the network sees which game it plays (env.task_observed)
    scaled      together, with the rewards of every other game multiplied by --factor
    scaled, no PopArt    the same, with network.popart=false

and evaluates the last weights: --episodes of each game, in units of the game's own rewards. Prints a table of means
over the seeds, and each score as a share of the score alone, both counted from random play. Results are appended to a
JSON-lines file; what is in it is not run again. Two calls can share the ways, and a third prints the table.
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

from pronk.config import load_config

HERE = Path(__file__).parent
PRONK = [sys.executable, "-m", "pronk"]
GAMES = {task.name: task.id for task in load_config("minatar").env.tasks}
WAYS = ("random", "alone", "together", "observed", "scaled", "scaled, no PopArt")
RANDOM, BASELINE = "random", "alone"
LEAST = 1e-12  # a learning rate that changes nothing: random play


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", default=list(GAMES), choices=list(GAMES), metavar="GAME")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS, metavar="WAY")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], metavar="N")
    parser.add_argument("--steps", type=float, default=1_000_000, help="of each game")
    parser.add_argument("--episodes", type=int, default=100, help="of each game, in the evaluation at the end")
    parser.add_argument("--factor", type=float, default=100.0)
    parser.add_argument("--results", type=Path, default=Path("many_tasks.jsonl"))
    parser.add_argument("overrides", nargs="*", metavar="SECTION.KEY=VALUE", help="settings of Pronk, for all")
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.results.read_text().splitlines()] if options.results.exists() else []
    for seed, way in ((seed, way) for seed in options.seeds for way in options.ways):
        for games in [[game] for game in options.games] if way == BASELINE else [options.games]:
            job = {"way": way, "games": games, "seed": seed, "steps": options.steps, "factor": options.factor}
            job |= {"set": options.overrides, "episodes": options.episodes}
            if any(job.items() <= row.items() for row in rows):
                continue
            rows.append(job | {"returns": measure(job)})
            with options.results.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            shown = ", ".join(f"{game} {value:.2f}" for game, value in rows[-1]["returns"].items())
            print(f"seed {seed}, {way}: {shown}", flush=True)
    print(table(rows, options))


def measure(job: dict[str, Any]) -> dict[str, float]:
    """Train and evaluate once. Returns the mean of each game, in units of its own rewards."""
    way, games = job["way"], job["games"]
    factors = {game: job["factor"] if "scaled" in way and number % 2 else 1.0 for number, game in enumerate(games)}
    settings = [f"env.tasks={json.dumps([task_of(game, factors[game]) for game in games])}"]
    settings.append(f"run.total_steps={job['steps'] * len(games):.0f}")
    settings += {
        BASELINE: ["actors.envs=20"],
        "observed": ["env.task_observed=true"],
        "scaled, no PopArt": ["network.popart=false"],
        RANDOM: [f"optimiser.learning_rate={LEAST}", "run.total_steps=10000"],
    }.get(way, [])
    paths = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": paths}
    with tempfile.TemporaryDirectory() as folder:
        run = ["--seed", str(job["seed"]), "--quiet", "--run-dir", f"{folder}/run"]
        subprocess.run([*PRONK, "train", "minatar", *settings, *job["set"], *run], check=True, env=environment)
        command = [*PRONK, "eval", f"{folder}/run", "--episodes", str(job["episodes"]), "--json"]
        played = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    summary = json.loads(played.stdout)
    means = {game: task["mean"] for game, task in summary.get("tasks", {games[0]: summary}).items()}
    return {game: mean / factors[game] for game, mean in means.items()}


def task_of(game: str, factor: float) -> dict[str, Any]:
    """Return the task of the preset, with its rewards multiplied."""
    wrappers: list[dict[str, Any]] = [{"pad": [10, 10, 10]}]
    if factor != 1.0:
        wrappers.append({"scaled:rewards": factor})
    return {"name": game, "id": GAMES[game], "wrappers": wrappers}


def table(rows: list[dict[str, Any]], options: argparse.Namespace) -> str:
    """Render Markdown: a row for each way, a column for each game and the mean share of the score alone."""
    mine = [
        row
        for row in rows
        if all(row[key] == getattr(options, key) for key in ("steps", "factor", "episodes"))
        and row["set"] == options.overrides
        and row["seed"] in options.seeds
    ]
    scores = {way: {game: score(mine, way, game) for game in options.games} for way in options.ways}
    lines = [
        f"| {options.steps:,.0f} steps of each game | {' | '.join(options.games)} | of the score alone |",
        "|---|" + "---|" * (len(options.games) + 1),
    ]
    for way, found in scores.items():
        cells = [f"{value:.2f}" if value is not None else "" for value in found.values()]
        lines.append(f"| {way} | {' | '.join(cells)} | {share(found, scores)} |")
    return "\n".join(lines)


def score(rows: list[dict[str, Any]], way: str, game: str) -> float | None:
    """Return the mean over the seeds."""
    values = [row["returns"][game] for row in rows if row["way"] == way and game in row["returns"]]
    return statistics.fmean(values) if values else None


def share(found: dict[str, float | None], scores: dict[str, dict[str, float | None]]) -> str:
    """Return the mean and the least, over the games learnt alone, of (score - random) / (score alone - random)."""
    shares = []
    for game, value in found.items():
        least, alone = (scores.get(way, {}).get(game) for way in (RANDOM, BASELINE))
        if value is not None and least is not None and alone is not None and alone > least:
            shares.append((value - least) / (alone - least))
    counted = f" ({len(shares)} of {len(found)} games; the others were not learnt alone)"
    more = counted if len(shares) < len(found) else ""
    return f"mean {statistics.fmean(shares):.0%}, least {min(shares):.0%}{more}" if shares else ""


if __name__ == "__main__":
    main()
