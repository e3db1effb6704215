"""The table and the plot of `against_sb3.py`, from its JSON lines."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

ALGORITHMS = {"pronk": "Pronk", "ppo": "SB3 PPO", "a2c": "SB3 A2C"}
# 97.5% points of Student's t for 1, 2, ... degrees of freedom.
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
METHOD = """# Pronk beside Stable-Baselines3

`python benchmarks/against_sb3.py --sb3-python ...` trains Pronk and SB3's PPO and A2C, each in a program of its own,
for the same number of seconds on the same machine, in turn. Nobody gets settings but the time limit. The machine has to
be idle otherwise: Pronk is several processes and SB3 one, so other work would slow SB3 more.

- SB3's two run side by side, a core and a thread each; Pong's have the machine to themselves. With small networks SB3
  is not slower so than alone with two threads (benchmarks/against_sb3.py has the figures).
- SB3: `MlpPolicy` for vectors, `CnnPolicy` for Atari, eight environments, everything else as SB3 has it. MiniGrid and
  BabyAI go through `FlatObsWrapper`, as in RL Zoo, so the mission is part of the vector. MinAtar's grids are flattened.
  Pong is `PongNoFrameskip-v4` with SB3's Atari wrapper and a stack of four frames.
- Pronk: `pronk train ID run.total_seconds=...`; Pong is `pronk train atari env.game=pong`. The time limit also ends its
  learning-rate schedule. Starting its actors is part of its time; importing and making environments is not part of
  SB3's.
- Return: the mean of 30 episodes (Pong: 10) that the last policy plays with sampled actions; the second table has the
  likeliest actions, too. Intervals: 95% of the mean over seeds (Student's t). Random play: every action alike.
- Even: the difference to the better of PPO and A2C is below two standard errors (of the seeds and of the episodes
  played), or below 2% of the way from random play to the best.

"""
EVEN = 0.02  # differences below this share of the way from random play to the best count as none


class Score(NamedTuple):
    """Mean returns of one algorithm on one environment, one per seed."""

    means: tuple[float, ...]
    deterministic: float
    steps: float
    episode_error: float
    """Standard error of the mean of one run's episodes. The seeds of one algorithm start most of their episodes in the
    same states, so their means have this error in common."""

    @property
    def mean(self) -> float:
        return statistics.fmean(self.means)

    @property
    def error(self) -> float:
        """Standard error of the mean over the seeds; 0 for one seed."""
        return statistics.stdev(self.means) / math.sqrt(len(self.means)) if len(self.means) > 1 else 0.0

    @property
    def half_interval(self) -> float:
        """Half of the 95% interval of the mean over the seeds (Student's t)."""
        degrees = len(self.means) - 1
        return self.error * (STUDENT[min(degrees, len(STUDENT)) - 1] if degrees else 0.0)


class Comparison(NamedTuple):
    """One environment."""

    env: str
    random: float | None
    scores: dict[str, Score]

    @property
    def verdict(self) -> str:
        """Say how Pronk stands against the better of its peers: ahead, even or behind."""
        peers = [score for name, score in self.scores.items() if name != "pronk"]
        mine = self.scores.get("pronk")
        if mine is None or not peers:
            return ""
        best = max(peers, key=lambda score: score.mean)
        scale = abs(max(best.mean, mine.mean) - self.random) if self.random is not None else 0.0
        difference = mine.mean - best.mean
        errors = (mine.error, best.error, mine.episode_error, best.episode_error)
        if abs(difference) <= max(2 * math.hypot(*errors), EVEN * scale):
            return "even"
        return "ahead" if difference > 0 else "behind"


def compare(rows: list[dict[str, Any]], seconds: float, overrides: tuple[str, ...] = ()) -> list[Comparison]:
    """Group rows of one training time by environment, in the order in which they were measured."""
    found = []
    for env in dict.fromkeys(row["env"] for row in rows):
        mine = [row for row in rows if row["env"] == env]
        random = next((row["sampled"]["mean"] for row in mine if row["algorithm"] == "random"), None)
        scores = {}
        for name in ALGORITHMS:
            wanted = list(overrides) if name == "pronk" else []
            runs = [row for row in mine if (row["algorithm"], row["seconds"]) == (name, seconds)]
            runs = [row for row in runs if list(row["overrides"]) == wanted]
            if runs:
                deterministic = statistics.fmean(row["deterministic"]["mean"] for row in runs)
                steps = statistics.fmean(row["steps"] for row in runs)
                sampled = [row["sampled"] for row in runs]
                error = math.sqrt(statistics.fmean(one["std"] ** 2 / one["episodes"] for one in sampled))
                scores[name] = Score(tuple(one["mean"] for one in sampled), deterministic, steps, error)
        if scores:
            found.append(Comparison(env, random, scores))
    return found


def table(comparisons: list[Comparison]) -> str:
    """Render Markdown: mean return over seeds with its 95% interval, and millions of steps trained."""
    lines = [
        f"| environment | random | {' | '.join(ALGORITHMS.values())} | Pronk is | steps (M) |",
        "|---|---|" + "---|" * len(ALGORITHMS) + "---|---|",
    ]
    for each in comparisons:
        cells = [cell(each.scores.get(name)) for name in ALGORITHMS]
        steps = " / ".join(f"{each.scores[name].steps / 1e6:.2g}" for name in ALGORITHMS if name in each.scores)
        random = "" if each.random is None else number(each.random)
        lines.append(f"| {each.env} | {random} | {' | '.join(cells)} | {each.verdict} | {steps} |")
    return "\n".join(lines)


def by_seed(comparisons: list[Comparison]) -> str:
    """Render Markdown: every seed's mean return, and the mean with the likeliest actions."""
    lines = ["| environment | algorithm | mean return of each seed | likeliest actions |", "|---|---|---|---|"]
    for each in comparisons:
        for name, score in each.scores.items():
            means = ", ".join(map(number, score.means))
            lines.append(f"| {each.env} | {ALGORITHMS[name]} | {means} | {number(score.deterministic)} |")
    return "\n".join(lines)


def cell(score: Score | None) -> str:
    if score is None:
        return ""
    return f"{number(score.mean)} ± {number(score.half_interval)}" if len(score.means) > 1 else number(score.mean)


def number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def print_table(rows: list[dict[str, Any]], seconds: float, overrides: tuple[str, ...]) -> None:
    """Print what was measured with this training time and these settings of Pronk."""
    print(table(compare(rows, seconds, overrides)))


def write_table(rows: list[dict[str, Any]], path: Path) -> None:
    """Replace everything after the marker line of a Markdown file by the tables, and draw the plot beside it."""
    seconds = Counter(row["seconds"] for row in rows if row["algorithm"] != "random").most_common(1)[0][0]
    comparisons = compare(rows, seconds)
    marker = "<!-- everything below is written by benchmarks/against_sb3.py --table -->\n"
    before = path.read_text().partition(marker)[0] if path.exists() else METHOD
    verdicts = Counter(each.verdict for each in comparisons if each.verdict)
    count = ", ".join(f"{word} on {verdicts[word]}" for word in ("ahead", "even", "behind") if verdicts[word])
    plot = path.with_suffix(".png")
    draw(comparisons, plot)
    told = f"Pronk is {count} of {verdicts.total()} environments, after {seconds:g} seconds of training each."
    path.write_text(
        f"{before}{marker}\n{told} {seeds_of(comparisons)} {measured_on(rows)}\n\n{table(comparisons)}\n\n"
        f"![Random play as 0, the best mean as 1]({plot.name})\n\n## Every seed\n\n{by_seed(comparisons)}\n"
    )
    print(f"{path} and {plot}")


def seeds_of(comparisons: list[Comparison]) -> str:
    """Say how many seeds there are; with one, nothing is known about chance."""
    counts = sorted({len(score.means) for each in comparisons for score in each.scores.values()})
    if counts == [1]:
        return "So far with one seed each: differences may be chance."
    return f"{counts[0] if len(counts) == 1 else f'{counts[0]} to {counts[-1]}'} seeds each."


def measured_on(rows: list[dict[str, Any]]) -> str:
    machines, commits = ({row[key] for row in rows if key in row} for key in ("machine", "commit"))
    return f"Measured on {' and '.join(sorted(machines))}, Pronk at {', '.join(sorted(commits))}."


def draw(comparisons: list[Comparison], path: Path) -> None:
    """Draw every seed on a scale from random play (0) to the best mean (1)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [each for each in comparisons if each.random is not None]
    figure, axes = pyplot.subplots(figsize=(8, 0.45 * len(shown) + 1.2), layout="constrained")
    for offset, (name, label) in enumerate(ALGORITHMS.items()):
        points = [(value, row) for row, each in enumerate(shown) for value in relative(each, name)]
        if points:
            x, y = zip(*points, strict=True)
            axes.scatter(x, [row + 0.22 * (offset - 1) for row in y], s=22, label=label)
    axes.axvline(0, color="grey", linewidth=0.8)
    axes.axvline(1, color="grey", linewidth=0.8)
    axes.set_yticks(range(len(shown)), [each.env for each in shown])
    axes.invert_yaxis()
    axes.set_xlim(left=-1)
    axes.set_xlabel("return: 0 is random play, 1 the best mean of the three")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False)
    figure.savefig(path, dpi=130)


def relative(each: Comparison, name: str) -> list[float]:
    best = max(score.mean for score in each.scores.values())
    span = best - each.random if each.random is not None and best > each.random else 1.0
    return [(value - (each.random or 0.0)) / span for value in each.scores[name].means] if name in each.scores else []
