"""The tables and the figure of `growth.py`, from its points."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

MARKER = "<!-- everything below is written by benchmarks/growth.py --table -->"
TITLES = {
    "actors": "Actors",
    "environments": "Environments of one actor",
    "unroll": "Steps per unroll",
    "weights": "Weights of the network",
    "learners": "Learners, the same work in all",
}
CLIFF = 0.5  # of the neighbour's steps/s, for the same work: less is marked
COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "steps/s": lambda point: f"{point['steps_per_second']:,.0f}",
    "CPU µs per step": lambda point: f"{point['cpu_microseconds']:.1f}",
    "policy lag": lambda point: f"{point['policy_lag']:.2f}",
    "memory, MiB": lambda point: f"{point['memory_mib']:,}",
    "learner waits": lambda point: f"{point['learner_waits']:.0%}",
    "all play after": lambda point: f"{point['started']:.1f} s",
    "Ctrl-C takes": lambda point: f"{point['ended']:.1f} s",
}


def write_page(page: Path, points: list[dict[str, Any]]) -> None:
    """Write the tables below the marker of a page, and the figure beside it."""
    before, marker, _ = page.read_text(encoding="utf-8").partition(MARKER)
    if not marker:
        raise SystemExit(f"{page} has no line {MARKER}")
    figure = page.with_suffix(".png")
    draw(points, figure)
    machine = sorted({f"{point['cores']} cores, Python {point['python']}, {point['commit']}" for point in points})
    seconds = sorted({f"{point['seconds']:g}" for point in points})
    parts = [
        f"![steps per second, memory and lag against each dimension]({figure.name})",
        *(f"## {TITLES[name]}\n\n{table(name, points)}" for name in TITLES if series(name, points)),
        f"Measured for {' or '.join(seconds)} s each, on {'; '.join(machine)}.",
    ]
    page.write_text(before + marker + "\n\n" + "\n\n".join(parts) + "\n", encoding="utf-8")


def series(name: str, points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the points of a dimension in their order."""
    return sorted((point for point in points if point["dimension"] == name), key=lambda point: point["value"])


def table(name: str, points: list[dict[str, Any]]) -> str:
    """Render one dimension as Markdown. The last column has the speed as a share of the row above."""
    header = [name, *COLUMNS, "of the row above"]
    rows, before = [], None
    for point in series(name, points):
        if "failed" in point:
            rows.append([f"{point['value']:,}", point["failed"], *[""] * len(COLUMNS)])
            continue
        cells = [f"{point['value']:,}", *(show(point) for show in COLUMNS.values())]
        rows.append([*cells, compared(point, before) if before else ""])
        before = point
    lines = [header, ["---:"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def compared(point: dict[str, Any], before: dict[str, Any]) -> str:
    """Return the speed as a share of the neighbour's. A step of a network with more weights is more work."""
    ratio = point["steps_per_second"] / before["steps_per_second"]
    work = point["value"] / before["value"] if point["dimension"] == "weights" else 1.0
    return f"{ratio:.2f}" + (" (cliff)" if ratio * work < CLIFF else "")


def draw(points: list[dict[str, Any]], path: Path) -> None:
    """Draw one panel per dimension: steps/s on the left axis, memory and lag on the right one. All axes are log."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = [name for name in TITLES if series(name, points)]
    figure, axes = pyplot.subplots(2, -(-len(names) // 2), figsize=(12, 7), layout="constrained", squeeze=False)
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    handles: list[Any] = []
    for name, axis in zip(names, axes.flat, strict=False):
        there = [point for point in series(name, points) if "failed" not in point]
        values = [point["value"] for point in there]
        other = axis.twinx()
        handles = [
            *axis.plot(values, [point["steps_per_second"] for point in there], "o-", color="C0", label="steps/s"),
            *other.plot(values, [point["memory_mib"] for point in there], "s--", color="C1", label="memory, MiB"),
            *other.plot(values, [point["policy_lag"] + 1 for point in there], "^:", color="C2", label="policy lag + 1"),
        ]
        axis.set(xscale="log", yscale="log", title=TITLES[name], ylabel="steps/s")
        other.set(yscale="log")
        axis.set_xticks(values, [short(value) for value in values])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        highest = max(point["steps_per_second"] for point in there)
        axis.set_ylim(highest / 1000, highest * 2)  # three decades in every panel, so that slopes can be compared
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def short(value: int) -> str:
    """Return a number for an axis: 10K, 3M."""
    for unit, size in (("M", 1_000_000), ("K", 10_000)):
        if value >= size:
            return f"{value / (1_000_000 if unit == 'M' else 1000):g}{unit}"
    return f"{value}"
