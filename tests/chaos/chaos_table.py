"""The table of docs/results/chaos.md, from the results of all calls."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

CHECKS = ("the run ends", "resumed to the end")  # at the end of a run with several faults: not faults
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"


def write_table(results: Path, page: Path) -> None:
    """Replace the table in the page, between its two marks."""
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    text = page.read_text()
    head, _, rest = text.partition(BEGIN)
    page.write_text(head + BEGIN + table(lines) + END + rest.partition(END)[2])


def table(results: list[dict[str, Any]]) -> str:
    """A row for each kind of fault and transport."""
    rows: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for one in results:
        rows[one["kind"], one["transport"]].append(one)
    text = "| fault | transport | faults | survived | ended with its cause | anything else | longest, s |\n"
    text += "|---|---|---:|---:|---:|---:|---:|\n"
    for (kind, transport), each in sorted(rows.items()):
        text += row(kind, transport, each)
    return text + row("**all faults**", "", [one for one in results if one["kind"] not in CHECKS])


def row(kind: str, transport: str, results: list[dict[str, Any]]) -> str:
    """One line of it."""
    outcomes = [one["outcome"] for one in results]
    survived, ended = outcomes.count("survived"), outcomes.count("ended with its cause")
    longest = max(one["seconds"] for one in results)
    counts = f"{len(results)} | {survived} | {ended} | {len(results) - survived - ended}"
    return f"| {kind} | {transport} | {counts} | {longest:.1f} |\n"
