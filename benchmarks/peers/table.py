"""The page of `benchmarks.peers.run`: `python -m benchmarks.peers.table` writes docs/results/peers.md and its chart.

Everything below the page's marker is replaced. Ratios are taken within a round, and their median is shown.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from against_sb3 import read
from against_sb3_table import number

from .base import PEERS, WORKS
from .run import RESULTS

PAGE = RESULTS.with_suffix(".md")
MARKER = "<!-- everything below is written by python -m benchmarks.peers.table -->\n"
NOTHING = "Nothing is measured yet on this commit.\n"
SOLVED = 475.0
MEASURE = {"cartpole": "steps_per_second", "pong": "steps_per_second", "halfcheetah": "return"}
UNITS = {"cartpole": "steps/s", "solve": "s", "pong": "steps/s", "halfcheetah": "return"}


class Cell(NamedTuple):
    """What one peer did at one work. A round that failed or did not solve the task has no value."""

    peer: str
    values: dict[int, float]
    """By round."""
    rounds: int
    memory: float
    startup: float | None
    envs: int | None

    @property
    def median(self) -> float | None:
        return statistics.median(self.values.values()) if self.values else None

    @property
    def label(self) -> str:
        return PEERS[self.peer].label


class Comparison(NamedTuple):
    """One work with one setting. For CartPole's throughput, the setting is the number of environments."""

    work: str
    setting: int | None
    cells: list[Cell]

    @property
    def title(self) -> str:
        return WORKS[self.work] + (f", {self.setting} environments" if self.setting else "")

    @property
    def ratios(self) -> dict[int, float]:
        """Pronk over the best peer of each round; for seconds, the best peer over Pronk. None for returns."""
        if self.work == "halfcheetah":
            return {}
        mine = next((cell.values for cell in self.cells if cell.peer == "pronk"), {})
        found = {}
        for number_, value in mine.items():
            others = [cell.values[number_] for cell in self.cells if cell.peer != "pronk" and number_ in cell.values]
            if others:
                found[number_] = min(others) / value if self.work == "solve" else value / max(others)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    write(read(options.results), options.page)
    print(options.page)


def write(rows: list[dict[str, Any]], page: Path) -> None:
    """Replace what is below the marker, and draw the chart beside the page."""
    before = page.read_text().partition(MARKER)[0]
    if any("failure" not in row for row in rows):
        draw(compare(rows), page.with_suffix(".png"))
    page.write_text(f"{before}{MARKER}\n{render(rows, page.with_suffix('.png').name)}")


def compare(rows: list[dict[str, Any]]) -> list[Comparison]:
    """Group rows by work and setting. Of several runs of the same round, the last that did not fail counts."""
    found = []
    kinds = {(row["work"], row["job_envs"]) for row in rows}
    for work, setting in sorted(kinds, key=lambda kind: (list(WORKS).index(kind[0]), kind[1] or 0)):
        cells = []
        for peer in PEERS:
            mine = [row for row in rows if (row["work"], row["job_envs"], row["peer"]) == (work, setting, peer)]
            done = {row["round"]: row for row in mine if "failure" not in row}
            if done:
                cells.append(cell(peer, work, done))
        if cells:
            found.append(Comparison(work, setting, cells))
    return found


def cell(peer: str, work: str, done: dict[int, dict[str, Any]]) -> Cell:
    values = {key: value for key, row in done.items() if (value := value_of(work, row)) is not None}
    startups = [row["startup_seconds"] for row in done.values() if "startup_seconds" in row]
    memory = max(row["peak_mib"] for row in done.values())
    envs = next((row["envs"] for row in done.values() if "envs" in row), None)
    return Cell(peer, values, len(done), memory, statistics.median(startups) if startups else None, envs)


def value_of(work: str, row: dict[str, Any]) -> float | None:
    """Return the measured figure; None for a policy that does not solve CartPole when it is played."""
    if work == "solve":
        return row["solve_seconds"] if max(row["evaluation"].values()) >= SOLVED else None
    return row[MEASURE[work]]


def render(rows: list[dict[str, Any]], chart: str) -> str:
    comparisons = compare(rows)
    if not comparisons:
        return NOTHING + failures(rows)
    parts = [summary(comparisons), f"![Medians of the rounds]({chart})"]
    parts += [f"## {each.title}\n\n{table(each)}" for each in comparisons]
    parts += [f"## Versions\n\n{versions(rows)}", measured_on(rows)]
    return "\n\n".join(part.strip() for part in [*parts, failures(rows)] if part) + "\n"


def summary(comparisons: Iterable[Comparison]) -> str:
    lines = []
    for each in comparisons:
        if each.ratios:
            low, middle, high = (
                min(each.ratios.values()),
                statistics.median(each.ratios.values()),
                max(each.ratios.values()),
            )
            rounds = f"{len(each.ratios)} rounds" if len(each.ratios) > 1 else "one round"
            lines.append(f"- {each.title}: **{middle:.1f}x** the best peer ({low:.1f}x to {high:.1f}x in {rounds}).")
    return "\n".join(lines)


def table(each: Comparison) -> str:
    rounds = "seconds of each round" if each.work == "solve" else "each round"
    lines = [
        f"| | {UNITS[each.work]}, median | {rounds} | environments | memory, MiB | start-up, s |",
        "|---|---|---|---|---|---|",
    ]
    for one in ranked(each):
        cells = [
            one.label,
            figure(one.median, each.work) if one.median is not None else "not solved",
            ", ".join(figure(value, each.work) for _, value in sorted(one.values.items())) + unsolved(one),
            str(one.envs or each.setting or ""),
            f"{one.memory:,.0f}",
            "" if one.startup is None else f"{one.startup:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def ranked(each: Comparison) -> list[Cell]:
    """Best first; what was never solved last."""
    sign = 1 if each.work == "solve" else -1
    return sorted(each.cells, key=lambda one: (one.median is None, sign * (one.median or 0.0)))


def unsolved(one: Cell) -> str:
    missing = one.rounds - len(one.values)
    return f" ({missing} of {one.rounds} not solved)" if missing else ""


def figure(value: float, work: str) -> str:
    if work == "solve":
        return f"{value:.1f}"
    return f"{value:,.0f}" if abs(value) >= 100 else number(value)


def versions(rows: list[dict[str, Any]]) -> str:
    lines = ["| | versions |", "|---|---|"]
    for peer, one in PEERS.items():
        found: dict[str, set[str]] = {}
        for row in rows:
            for name, version in row.get("versions", {}).items() if row["peer"] == peer else ():
                found.setdefault(name, set()).add(version)
        if found:
            told = ", ".join(f"{name} {' and '.join(sorted(each))}" for name, each in found.items())
            checkout = one.venv.checkout if one.venv else None
            told += f"; {checkout.url.removeprefix('https://')} at {checkout.commit[:10]}" if checkout else ""
            lines.append(f"| {one.label} | {told} |")
    return "\n".join(lines)


def measured_on(rows: list[dict[str, Any]]) -> str:
    done = [row for row in rows if "failure" not in row]
    machines, commits = ({row[key] for row in done} for key in ("machine", "commit"))
    dates = sorted(row["date"][:10] for row in done)
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return f"Measured on {' and '.join(sorted(machines))}, {when}, Pronk at {', '.join(sorted(commits))}."


def failures(rows: list[dict[str, Any]]) -> str:
    """List what failed and did not succeed in a later attempt."""
    done = {(row["work"], row["peer"], row["job_envs"]) for row in rows if "failure" not in row}
    last = {(row["work"], row["peer"], row["job_envs"]): row["failure"] for row in rows if "failure" in row}
    lines = [
        f"- {PEERS[peer].label}, {WORKS[work]}: `{text}`"
        for (work, peer, envs), text in last.items()
        if (work, peer, envs) not in done
    ]
    return "\n## What failed\n\n" + "\n".join(lines) + "\n" if lines else ""


def draw(comparisons: list[Comparison], path: Path) -> None:
    """Draw a bar per peer, and a panel per work."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    height = sum(len(each.cells) for each in comparisons)
    sizes = [len(each.cells) + 1 for each in comparisons]
    figure_, panels = pyplot.subplots(
        len(comparisons),
        figsize=(8, 0.32 * height + 0.9 * len(comparisons)),
        height_ratios=sizes,
        squeeze=False,
        layout="constrained",
    )
    for axes, each in zip(panels[:, 0], comparisons, strict=True):
        shown = [one for one in ranked(each) if one.median is not None]
        colours = ["tab:orange" if one.peer == "pronk" else "tab:blue" for one in shown]
        bars = axes.barh([one.label for one in shown], [one.median for one in shown], color=colours)
        axes.bar_label(bars, [figure(one.median, each.work) for one in shown if one.median is not None], padding=3)
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.set_title(each.title, loc="left", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    figure_.savefig(path, dpi=130)
    pyplot.close(figure_)


if __name__ == "__main__":
    main()
